// SPDX-License-Identifier: MIT OR Apache-2.0
//! A source of packets of one size, opened by their only consumer.
//!
//! Consumers of mapped memory spin without a pause instruction. Emulated by QEMU, each one takes the global lock of the
//! emulator, which the interrupt of the timer needs, too: of all that spin, the median latency then varies between 2 and 300 µs.

use anyhow::Result;
use sluice_testkit::hft::MIN_PACKET;

/// Bytes of a packet, half of them payload.
pub const SIZE: usize = MIN_PACKET;
pub const INTERVAL_NS: u64 = 1_000_000;

pub type Open = fn() -> Result<Box<dyn Source>>;

pub trait Source {
    /// Starts the timer that publishes, on this processor.
    fn start(&mut self, cpu: usize) -> Result<()>;

    /// Waits for the next packet, and copies it.
    fn receive(&mut self, packet: &mut [u8; SIZE]) -> Result<()>;

    /// The header of a received packet; None if it was overwritten while it was copied.
    fn header(&mut self, packet: &[u8; SIZE]) -> Result<Option<Header>>;
}

#[derive(Clone, Copy)]
pub struct Header {
    pub sequence: u64,
    /// Packets lost directly before this one, by the producer's count; None if it does not count them.
    pub lost: Option<u64>,
    /// The producer's time stamp counter.
    pub cycles: u64,
}
