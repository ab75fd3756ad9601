// SPDX-License-Identifier: MIT OR Apache-2.0
//! The counts of the plugin of QEMU, which appends a line to a file whenever the guest executes the mark. A loop of known length is
//! their control, and the measure of their background.

use std::path::PathBuf;
use std::rc::Rc;
use std::thread::sleep;
use std::time::Duration;
use std::{env, fs, thread};

use anyhow::{Context, Result, anyhow, bail, ensure};
use sluice_testkit::clock;
use sluice_testkit::spread::Spread;

use crate::harness::figures::{KERNEL, USER};
use crate::harness::rounds::{Job, Measurement};

/// Set by `vm/run --count`: the path of the file.
const VARIABLE: &str = "SLUICE_COUNTS";
/// Long enough for several interrupts of the timer.
pub const ITERATIONS: u64 = 10_000_000;
const INSTRUCTIONS_PER_ITERATION: u64 = 2;
/// The count of the loop may differ from its length by one in so many.
const TOLERANCE: u64 = 1000;
const BACKGROUND_LOOPS: usize = 5;
const STRING: usize = 1 << 20;
/// It, and what prepares its registers. It begins anew after each interrupt.
const MAX_OF_STRING: u64 = 100;
const SETTLE: Duration = Duration::from_millis(20);

/// A no-operation instruction that vm/plugin/count.c recognises: nopl with the displacement "Slui".
#[inline(always)]
pub fn mark() {
    // SAFETY: it changes neither registers nor memory; the compiler moves no memory access across it.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!(
            ".byte 0x0f, 0x1f, 0x84, 0x00, 0x53, 0x6c, 0x75, 0x69",
            options(nostack, preserves_flags)
        );
    }
}

/// Executes exactly this number of iterations, of two instructions each.
fn spin(iterations: u64) {
    // SAFETY: it counts a register of its own down.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!(
            "2:",
            "dec {left}",
            "jnz 2b",
            left = inout(reg) iterations.max(1) => _,
            options(nomem, nostack)
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    (0..iterations).for_each(|_| std::hint::spin_loop());
}

fn fill(bytes: &mut [u8]) {
    // SAFETY: it writes as many bytes as there are, and the direction flag is clear.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!(
            "rep stosb",
            inout("rcx") bytes.len() => _,
            inout("rdi") bytes.as_mut_ptr() => _,
            in("al") 0_u8,
            options(nostack, preserves_flags)
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    bytes.fill(0);
}

/// Instructions that the guest has executed: of programs, and of its kernel.
type Count = [u64; 2];

pub struct Counter {
    path: PathBuf,
    /// Instructions of the kernel per nanosecond while a process needs nothing of it.
    background: f64,
}

impl Counter {
    pub fn open() -> Result<Option<Self>> {
        let Some(path) = env::var_os(VARIABLE) else {
            return Ok(None);
        };
        // Once a process has had a second thread, glibc takes a longer path around some system calls, in processes forked from
        // it, too. Some mechanisms need threads: with one, the counts of all are alike whichever mechanisms are measured.
        let ended = thread::spawn(|| {}).join();
        ended.map_err(|_| anyhow!("a thread that does nothing failed"))?;
        let mut counter = Self {
            path: path.into(),
            background: 0.0,
        };
        let before = counter.read()?.len();
        mark();
        ensure!(
            counter.read()?.len() == before + 1,
            "the plugin of QEMU does not count: {} has no line for the mark that was executed",
            counter.path.display()
        );
        let mut rates = Vec::new();
        for _ in 0..BACKGROUND_LOOPS {
            let (elapsed_ns, [_, kernel]) = counter.count_loop()?;
            rates.push(kernel as f64 / elapsed_ns.max(1) as f64);
        }
        let rates = Spread::of(&rates).context("the background is measured at least once")?;
        counter.background = rates.median;
        Ok(Some(counter))
    }

    /// What is counted between the two marks that `run` executes, in whichever process.
    pub fn count<T>(&self, run: impl FnOnce() -> Result<T>) -> Result<(T, Count)> {
        let before = self.read()?.len();
        let value = run()?;
        Ok((value, section(&self.read()?, before)?))
    }

    fn count_loop(&self) -> Result<(u64, Count)> {
        self.count(|| {
            // What the kernel has deferred, such as the work after reading the file of counts, is done by then.
            sleep(SETTLE);
            let begin = clock::now_ns();
            mark();
            spin(ITERATIONS);
            mark();
            Ok(clock::now_ns() - begin)
        })
    }

    pub fn measurement(
        &self,
        [user, kernel]: Count,
        elapsed_ns: u64,
        operations: u64,
    ) -> Measurement {
        let kernel = (kernel as f64 - self.background * elapsed_ns as f64).max(0.0);
        Measurement::default()
            .with(USER, user as f64 / operations as f64)
            .with(KERNEL, kernel / operations as f64)
    }

    fn read(&self) -> Result<Vec<Count>> {
        let path = self.path.display();
        let text = fs::read_to_string(&self.path);
        let text = text.with_context(|| format!("cannot read the counts in {path}"))?;
        parse(&text).with_context(|| format!("{path} is not a file of counts"))
    }
}

/// One count per line: the instructions of programs, and the instructions of the kernel.
fn parse(text: &str) -> Option<Vec<Count>> {
    let count = |line: &str| {
        let (user, kernel) = line.split_once(' ')?;
        Some([user.parse().ok()?, kernel.parse().ok()?])
    };
    text.lines().map(count).collect()
}

/// The difference of the two counts after those that were there before.
fn section(counts: &[Count], before: usize) -> Result<Count> {
    match counts.get(before..) {
        Some([begin, end]) => Ok([end[0] - begin[0], end[1] - begin[1]]),
        Some(counts) => bail!("{} marks were counted instead of 2", counts.len()),
        None => bail!("the file of counts became shorter"),
    }
}

/// The loop as a measurement, which fails if it is counted wrong.
pub struct Control(pub Rc<Counter>);

impl Job for Control {
    /// A repeated string instruction is one, although QEMU executes it in many steps.
    fn check(&self) -> Result<()> {
        // Not zero, so that the memory is there.
        let mut bytes = vec![1; STRING];
        let ((), [user, _]) = self.0.count(|| {
            mark();
            fill(&mut bytes);
            mark();
            Ok(())
        })?;
        ensure!(
            user < MAX_OF_STRING,
            "an instruction that writes {STRING} bytes was counted as {user}; the counts of this run are wrong"
        );
        self.measure().map(drop)
    }

    fn measure(&self) -> Result<Measurement> {
        let (_, count) = self.0.count_loop()?;
        let (counted, length) = (count[0], ITERATIONS * INSTRUCTIONS_PER_ITERATION);
        ensure!(
            counted.abs_diff(length) <= length / TOLERANCE,
            "a loop of {length} instructions was counted as {counted}; the counts of this run are wrong"
        );
        // The background is what remains here, so the background of no time is subtracted.
        Ok(self.0.measurement(count, 0, ITERATIONS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_the_difference_of_its_two_lines() {
        let counts = parse("1 5\n100 5000\n2000100 5007\n").unwrap();
        assert_eq!(section(&counts, 1).unwrap(), [2_000_000, 7]);
        for before in [0, 2, 3, 4] {
            assert!(section(&counts, before).is_err(), "{before}");
        }
        for text in ["1\n", "1 x\n", "1 2 3\n", "-1 2\n", "\n"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}
