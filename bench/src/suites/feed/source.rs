// SPDX-License-Identifier: MIT OR Apache-2.0
//! A source of packets of one size, opened by their only consumer.
//!
//! Consumers of mapped memory spin without a pause instruction. Emulated by QEMU, each one takes the global lock of the
//! emulator, which the interrupt of the timer needs, too: of all that spin, the median latency then varies between 2 and 300 µs.

use std::fs::File;
use std::io::Read as _;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sluice_testkit::clock;
use sluice_testkit::hft::MIN_PACKET;

/// Bytes of a packet, half of them payload.
pub const SIZE: usize = MIN_PACKET;
pub const INTERVAL: Duration = Duration::from_millis(1);

/// Waits for the next packet, and copies it. Returns the time stamp counter after the last byte, and the header; None if the
/// packet was overwritten while it was copied.
pub type Source = Box<dyn FnMut() -> Result<(u64, Option<Header>)>>;

/// Opens a source, and starts the timer that publishes, on this processor.
pub type Open = fn(usize) -> Result<Source>;

#[derive(Clone, Copy)]
pub struct Header {
    pub sequence: u64,
    /// Packets lost directly before this one, by the producer's count; None if it does not count them.
    pub lost: Option<u64>,
    /// The producer's time stamp counter.
    pub cycles: u64,
}

/// Receives by read(2).
pub fn reader(mut file: File, header: fn(&[u8; SIZE]) -> Option<Header>) -> Source {
    Box::new(move || {
        let mut packet = [0; SIZE];
        let read = file.read(&mut packet)?;
        let now = clock::cycles();
        ensure!(read == SIZE, "a packet has {read} bytes instead of {SIZE}");
        let header = header(&packet).context("a packet arrived damaged")?;
        Ok((now, Some(header)))
    })
}
