// SPDX-License-Identifier: MIT OR Apache-2.0
//! The counts of the plugin of QEMU, which appends a line to a file whenever the guest executes the mark.

use std::ops::Sub;
use std::path::{Path, PathBuf};
use std::{env, fs, thread};

use anyhow::{Context, Result, anyhow, bail, ensure};

/// Set by `vm/run --count`: the path of the file.
const VARIABLE: &str = "SLUICE_COUNTS";

/// Instructions that the guest has executed, of programs and of its kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    pub user: u64,
    pub kernel: u64,
}

impl Sub for Count {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            user: self.user - before.user,
            kernel: self.kernel - before.kernel,
        }
    }
}

/// A no-operation instruction that vm/plugin/count.c recognises: nopl with the displacement "Slui".
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn mark() {
    // SAFETY: it changes neither registers nor memory. The compiler moves no memory access across it, because it does not
    // know that.
    unsafe {
        std::arch::asm!(
            ".byte 0x0f, 0x1f, 0x84, 0x00, 0x53, 0x6c, 0x75, 0x69",
            options(nostack, preserves_flags)
        );
    }
}

#[cfg(not(target_arch = "x86_64"))]
pub fn mark() {}

pub struct Counter {
    path: PathBuf,
}

impl Counter {
    /// None where no instructions are counted.
    pub fn open() -> Result<Option<Self>> {
        let Some(path) = env::var_os(VARIABLE) else {
            return Ok(None);
        };
        take_path_of_threads()?;
        let counter = Self::at(path.into());
        let before = counter.read()?.len();
        mark();
        ensure!(
            counter.read()?.len() == before + 1,
            "the plugin of QEMU does not count: {} has no line for the mark that was executed",
            counter.path.display()
        );
        Ok(Some(counter))
    }

    pub fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// What is counted between the two marks that `run` executes, in whichever process.
    pub fn count<T>(&self, run: impl FnOnce() -> Result<T>) -> Result<(T, Count)> {
        let before = self.read()?.len();
        let value = run()?;
        Ok((value, section(&self.read()?, before)?))
    }

    fn read(&self) -> Result<Vec<Count>> {
        read(&self.path)
    }
}

/// Once a process has had a second thread, glibc takes a longer path around some system calls, in processes forked from it,
/// too. Some mechanisms need threads: with one, the counts of all are alike whichever mechanisms are measured.
fn take_path_of_threads() -> Result<()> {
    thread::spawn(|| {})
        .join()
        .map_err(|_| anyhow!("a thread that does nothing failed"))
}

fn read(path: &Path) -> Result<Vec<Count>> {
    let text = fs::read_to_string(path)
        .with_context(|| format!("cannot read the counts in {}", path.display()))?;
    parse(&text).with_context(|| format!("{} is not a file of counts", path.display()))
}

/// One count per line: the instructions of programs, and those of the kernel.
fn parse(text: &str) -> Option<Vec<Count>> {
    let line = |line: &str| {
        let (user, kernel) = line.split_once(' ')?;
        Some(Count {
            user: user.parse().ok()?,
            kernel: kernel.parse().ok()?,
        })
    };
    text.lines().map(line).collect()
}

/// The difference of the two counts after those that were there before.
fn section(counts: &[Count], before: usize) -> Result<Count> {
    match counts.get(before..) {
        Some(&[begin, end]) => Ok(end - begin),
        Some(counts) => bail!("{} marks were counted instead of 2", counts.len()),
        None => bail!("the file of counts became shorter"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_the_difference_of_its_two_lines() {
        let counts = parse("1 5\n100 5000\n2000100 5007\n").unwrap();
        let expected = Count {
            user: 2_000_000,
            kernel: 7,
        };
        assert_eq!(section(&counts, 1).unwrap(), expected);
    }

    #[test]
    fn a_missing_or_additional_mark_is_an_error() {
        let counts = [Count::default(); 3];
        for before in [0, 2, 3, 4] {
            assert!(section(&counts, before).is_err(), "{before}");
        }
    }

    #[test]
    fn other_files_are_rejected() {
        assert_eq!(parse(""), Some(Vec::new()));
        for text in ["1\n", "1 x\n", "1 2 3\n", "-1 2\n", "\n"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn the_mark_does_nothing_without_the_plugin() {
        let path = env::temp_dir().join(format!("sluice-counts-{}", std::process::id()));
        fs::write(&path, "").unwrap();
        let counted = Counter::at(path.clone()).count(|| {
            mark();
            mark();
            Ok(())
        });
        fs::remove_file(&path).unwrap();
        let error = counted.unwrap_err();
        assert!(error.to_string().contains("0 marks"), "{error}");
    }
}
