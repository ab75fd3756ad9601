// SPDX-License-Identifier: MIT OR Apache-2.0
//! Brings the files into memory. Inside the VM they come over 9P, which is slow and would be all that a transfer measured.

use std::fs::File;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;
use std::{fs, iter};

use anyhow::{Context, Result, bail};
use sluice_testkit::interrupt;

use crate::files::Source;
use crate::progress::Progress;

/// 9P answers several requests at a time, and each one late.
const READERS: u64 = 4;
const PIECE: u64 = 256 * 1024;

pub struct Staged {
    pub path: PathBuf,
    pub name: String,
    pub bytes: u64,
    /// As the program sha256sum says, which shares no code with the receiver's.
    pub sha256: String,
}

/// Copies of the two files under `folder`, readable by all.
pub fn stage(sources: &[Source; 2], folder: &Path) -> Result<[Staged; 2]> {
    let paths = ["a", "b"].map(|name| folder.join(name));
    copy_both(sources, &paths)?;
    let digests = sha256sums(&paths)?;
    let one = |index: usize| Staged {
        path: paths[index].clone(),
        name: sources[index].name(),
        bytes: sources[index].bytes,
        sha256: digests[index].clone(),
    };
    Ok([one(0), one(1)])
}

fn copy_both(sources: &[Source; 2], paths: &[PathBuf; 2]) -> Result<()> {
    let done = [AtomicU64::new(0), AtomicU64::new(0)];
    let labels = [0, 1].map(|index| sources[index].name());
    let mut progress = Progress::new("copying", labels, [0, 1].map(|index| sources[index].bytes));
    thread::scope(|scope| {
        let copies = [0, 1].map(|index| {
            let done = &done[index];
            scope.spawn(move || copy(&sources[index], &paths[index], done))
        });
        while copies.iter().any(|copy| !copy.is_finished()) {
            thread::sleep(Duration::from_millis(100));
            for (index, done) in done.iter().enumerate() {
                progress.set(index, done.load(Ordering::Relaxed));
            }
        }
        copies
            .into_iter()
            .try_for_each(|copy| copy.join().expect("a copying thread does not panic"))
    })?;
    progress.finish();
    Ok(())
}

fn copy(source: &Source, path: &Path, done: &AtomicU64) -> Result<()> {
    let from = File::open(&source.path)
        .with_context(|| format!("cannot open {}", source.path.display()))?;
    let to = File::create(path).with_context(|| format!("cannot make {}", path.display()))?;
    let (from, to) = (&from, &to);
    thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS)
            .map(|reader| scope.spawn(move || copy_pieces(from, to, reader, source.bytes, done)))
            .collect();
        readers
            .into_iter()
            .try_for_each(|reader| reader.join().expect("a copying thread does not panic"))
    })
    .with_context(|| {
        format!(
            "cannot copy {} to {}",
            source.path.display(),
            path.display()
        )
    })?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o444))?;
    Ok(())
}

/// Every READERS-th piece of the file.
fn copy_pieces(from: &File, to: &File, first: u64, bytes: u64, done: &AtomicU64) -> Result<()> {
    let mut buffer = vec![0; PIECE as usize];
    for (offset, len) in pieces(first, bytes) {
        interrupt::check()?;
        let piece = &mut buffer[..len];
        from.read_exact_at(piece, offset)?;
        to.write_all_at(piece, offset)?;
        done.fetch_add(len as u64, Ordering::Relaxed);
    }
    Ok(())
}

fn pieces(first: u64, bytes: u64) -> impl Iterator<Item = (u64, usize)> {
    let offsets = iter::successors(Some(first * PIECE), |offset| Some(offset + READERS * PIECE));
    offsets
        .take_while(move |&offset| offset < bytes)
        .map(move |offset| (offset, PIECE.min(bytes - offset) as usize))
}

/// Of both at the same time: there are two processors.
fn sha256sums(paths: &[PathBuf; 2]) -> Result<[String; 2]> {
    thread::scope(|scope| {
        let sums = [0, 1].map(|index| scope.spawn(move || sha256sum(&paths[index])));
        let [a, b] = sums.map(|sum| sum.join().expect("a summing thread does not panic"));
        Ok([a?, b?])
    })
}

fn sha256sum(path: &Path) -> Result<String> {
    let output = Command::new("sha256sum")
        .arg(path)
        .output()
        .context("cannot start sha256sum; install coreutils")?;
    if !output.status.success() {
        bail!(
            "sha256sum of {} failed: {}",
            path.display(),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    digest(&String::from_utf8_lossy(&output.stdout))
}

fn digest(line: &str) -> Result<String> {
    let digest = line.split_whitespace().next().unwrap_or_default();
    if digest.len() != 64 || !digest.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        bail!(
            "sha256sum wrote '{}', which has no digest in it",
            line.trim()
        );
    }
    Ok(digest.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pieces_of_all_readers_are_the_whole_file_once() {
        for bytes in [
            0,
            1,
            PIECE - 1,
            PIECE,
            PIECE + 1,
            READERS * PIECE,
            10 * PIECE + 17,
        ] {
            let mut all: Vec<_> = (0..READERS)
                .flat_map(|reader| pieces(reader, bytes))
                .collect();
            all.sort_unstable();
            let mut end = 0;
            for (offset, len) in all {
                assert_eq!(offset, end, "of {bytes} bytes");
                end += len as u64;
            }
            assert_eq!(end, bytes);
        }
    }

    #[test]
    fn a_digest_is_taken_only_from_a_line_that_has_one() {
        let sum = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest(&format!("{sum}  /a/file\n")).unwrap(), sum);
        assert!(digest("sha256sum: no such file\n").is_err());
        assert!(digest("").is_err());
    }
}
