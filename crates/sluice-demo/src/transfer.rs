// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sending and the receiving process. The file is in memory before the clock starts and what arrives stays in memory
//! until it has stopped, so that what is timed is the pipe.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};
use sluice_testkit::clock;
use sluice_testkit::module::PIPE_NODE;

use crate::protocol::{Event, Way, tell};
use crate::worker::INPUT;

/// Enough for a smooth bar, too few to be felt.
const REPORTS: u64 = 20;
const PAGE: usize = 4096;

pub fn send(way: Way, write_size: usize) -> Result<()> {
    let content = fs::read(INPUT).with_context(|| format!("cannot read {INPUT}"))?;
    let output = match way {
        Way::Sluice => File::options()
            .write(true)
            .open(PIPE_NODE)
            .with_context(|| refused("writing"))?,
        // Standard output would gather bytes in a buffer of its own.
        Way::Pipe => File::from(io::stdout().as_fd().try_clone_to_owned()?),
    };
    tell(&Event::Ready)?;
    io::stdin()
        .read_exact(&mut [0])
        .context("the demo ended before it said go")?;
    let begin_ns = clock::now_ns();
    let bytes = write_all(output, &content, write_size)?;
    tell(&Event::Sent { bytes, begin_ns })
}

pub fn write_all(mut output: impl Write, content: &[u8], write_size: usize) -> Result<u64> {
    for piece in content.chunks(write_size) {
        output
            .write_all(piece)
            .context("cannot write to the pipe")?;
    }
    Ok(content.len() as u64)
}

pub fn receive(way: Way, read_size: usize) -> Result<()> {
    let expected = fs::metadata(INPUT)
        .with_context(|| format!("cannot look at {INPUT}"))?
        .len() as usize;
    let mut store = touched(expected + read_size);
    tell(&Event::Ready)?;
    let input = match way {
        Way::Sluice => File::open(PIPE_NODE).with_context(|| refused("reading"))?,
        Way::Pipe => File::from(io::stdin().as_fd().try_clone_to_owned()?),
    };
    let bytes = read_all(input, &mut store, read_size, |bytes| {
        tell(&Event::Progress { bytes })
    })?;
    let end_ns = clock::now_ns();
    tell(&Event::Progress {
        bytes: bytes as u64,
    })?;
    let sha256 = (way == Way::Sluice).then(|| hexadecimal(&Sha256::digest(&store[..bytes])));
    tell(&Event::Received {
        bytes: bytes as u64,
        end_ns,
        sha256,
    })
}

/// Memory that is really there: the first touch of a page would otherwise be part of what is timed.
fn touched(len: usize) -> Vec<u8> {
    let mut store = vec![0; len];
    store.iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
    std::hint::black_box(store)
}

/// Reads to the end of the stream, however much comes.
fn read_all(
    mut input: impl Read,
    store: &mut Vec<u8>,
    read_size: usize,
    mut report: impl FnMut(u64) -> Result<()>,
) -> Result<usize> {
    let stride = (store.len() as u64 / REPORTS).max(1);
    let mut filled = 0;
    let mut next_report = stride;
    loop {
        if filled + read_size > store.len() {
            store.resize(filled + read_size, 0);
        }
        match input.read(&mut store[filled..filled + read_size]) {
            Ok(0) => return Ok(filled),
            Ok(n) => filled += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("cannot read from the pipe"),
        }
        if filled as u64 >= next_report {
            report(filled as u64)?;
            next_report += stride;
        }
    }
}

fn refused(way: &str) -> String {
    format!("cannot open {PIPE_NODE} for {way}; 'dmesg | tail' may say why")
}

pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_was_expected_is_kept_and_counted() {
        let content: Vec<u8> = (0..10_000u32).map(|number| (number * 7) as u8).collect();
        let mut store = touched(100);
        let mut reports = 0;
        let bytes = read_all(&content[..], &mut store, 64, |_| {
            reports += 1;
            Ok(())
        });
        assert_eq!(bytes.unwrap(), content.len());
        assert_eq!(&store[..content.len()], content);
        assert!(reports > 0);
    }

    #[test]
    fn digests_read_as_sha256sum_writes_them() {
        let digest = hexadecimal(&Sha256::digest(b"abc"));
        assert_eq!(
            digest,
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
