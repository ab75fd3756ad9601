// SPDX-License-Identifier: MIT OR Apache-2.0
//! The node of the naive source of packets, kernel/baseline/hft.c; its header hft.h describes all of this.

use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{Ordering, fence};

use anyhow::Result;
use nix::errno::Errno;
use nix::{request_code_none, request_code_read, request_code_write};

use crate::shared_memory::SharedMemory;

pub const NODE: &str = "/dev/hft";
pub const MAP_BYTES: NonZeroUsize = NonZeroUsize::new(32768).unwrap();
pub const RING_BYTES: usize = 16384;
pub const MIN_PACKET: usize = 64;
pub const MAX_PACKET: usize = 256;
pub const MIN_INTERVAL_NS: u64 = 50_000;
pub const MAX_INTERVAL_NS: u64 = 10_000_000_000;
/// The end of the packet's fields and the beginning of its payload.
const PAYLOAD: usize = 32;

const TYPE: u8 = b'h';
const NULL: libc::c_ulong = request_code_none!(TYPE, 0);
pub const START: libc::c_ulong = request_code_write!(TYPE, 1, size_of::<Start>());
const STOP: libc::c_ulong = request_code_none!(TYPE, 2);
pub const STATS: libc::c_ulong = request_code_read!(TYPE, 3, size_of::<Stats>());

/// The layout of the mapped memory.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    Slot = 1,
    UnalignedSlot = 2,
    Ring = 3,
    /// In the second memory.
    RingPages = 4,
}

impl Layout {
    fn head(self) -> usize {
        match self {
            Layout::Slot | Layout::Ring | Layout::RingPages => 0,
            Layout::UnalignedSlot => 60,
        }
    }

    /// The offset of the packet with this number, counted from 0.
    fn packet(self, number: u64, size: usize) -> usize {
        match self {
            Layout::Slot | Layout::UnalignedSlot => self.head() + 8,
            Layout::Ring | Layout::RingPages => 128 + number as usize % (RING_BYTES / size) * size,
        }
    }
}

const RING_TAIL: usize = 64;

/// How to run the simulator.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Start {
    pub variant: u32,
    pub size: u32,
    pub interval_ns: u64,
    pub cpu: i32,
    pub reserved: u32,
}

impl Start {
    /// Packets are read with read(2).
    pub fn for_readers() -> Self {
        Self {
            variant: 0,
            size: MIN_PACKET as u32,
            interval_ns: 1_000_000,
            cpu: -1,
            reserved: 0,
        }
    }

    pub fn mapped(layout: Layout) -> Self {
        Self {
            variant: layout as u32,
            ..Self::for_readers()
        }
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    pub published: u64,
    pub dropped: u64,
}

/// Enters and leaves the kernel.
pub fn null(file: &impl AsFd) -> nix::Result<()> {
    // SAFETY: the command has no argument.
    Errno::result(unsafe { libc::ioctl(file.as_fd().as_raw_fd(), NULL) }).map(drop)
}

pub fn start(file: &impl AsFd, settings: &Start) -> nix::Result<()> {
    // SAFETY: the kernel reads one structure.
    let result = unsafe { libc::ioctl(file.as_fd().as_raw_fd(), START, settings) };
    Errno::result(result).map(drop)
}

pub fn stop(file: &impl AsFd) -> nix::Result<()> {
    // SAFETY: the command has no argument.
    Errno::result(unsafe { libc::ioctl(file.as_fd().as_raw_fd(), STOP) }).map(drop)
}

/// Packets since the start.
pub fn stats(file: &impl AsFd) -> nix::Result<Stats> {
    let mut stats = Stats::default();
    // SAFETY: the kernel writes one structure.
    let result = unsafe { libc::ioctl(file.as_fd().as_raw_fd(), STATS, &raw mut stats) };
    Errno::result(result).map(|_| stats)
}

/// The fields of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    pub sequence: u64,
    pub time_ns: u64,
    pub tsc: u64,
    pub cpu: u32,
    pub size: u32,
}

impl Packet {
    /// None if a byte of the payload is wrong: then it was overwritten while it was copied.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (fields, payload) = bytes.split_at_checked(PAYLOAD)?;
        let long = |index: usize| fields[8 * index..].first_chunk().copied();
        let short = |index: usize| fields[4 * index..].first_chunk().copied();
        let packet = Self {
            sequence: u64::from_ne_bytes(long(0)?),
            time_ns: u64::from_ne_bytes(long(1)?),
            tsc: u64::from_ne_bytes(long(2)?),
            cpu: u32::from_ne_bytes(short(6)?),
            size: u32::from_ne_bytes(short(7)?),
        };
        let is_whole = payload.iter().all(|byte| *byte == packet.sequence as u8);
        is_whole.then_some(packet)
    }
}

/// The mapped memory of a layout.
pub struct Memory(SharedMemory);

impl Memory {
    pub fn map(file: &impl AsFd, layout: Layout) -> Result<Self> {
        let offset = match layout {
            Layout::Slot | Layout::UnalignedSlot | Layout::Ring => 0,
            Layout::RingPages => MAP_BYTES.get(),
        };
        SharedMemory::of_file(file, offset, MAP_BYTES).map(Self)
    }

    /// The number of packets published. Its halves are read one by one because it may be unaligned.
    pub fn head(&self, layout: Layout) -> u64 {
        let low = self.word(layout.head());
        u64::from(self.word(layout.head() + 4)) << 32 | u64::from(low)
    }

    /// Copies a packet below `head()`; one in a slot may change meanwhile. `number` counts from 0.
    pub fn copy_packet(&self, layout: Layout, number: u64, to: &mut [u8]) {
        load_fence();
        let start = layout.packet(number, to.len());
        for (index, bytes) in to.chunks_exact_mut(4).enumerate() {
            bytes.copy_from_slice(&self.word(start + 4 * index).to_ne_bytes());
        }
    }

    /// Stores the number of packets that were read from the ring.
    pub fn set_tail(&self, packets: u64) {
        full_fence();
        // SAFETY: inside the mapping and aligned; the kernel expects any value at any time.
        unsafe { self.0.at(RING_TAIL).cast().write_volatile(packets) };
    }

    fn word(&self, offset: usize) -> u32 {
        // SAFETY: inside the mapping and aligned, and any bytes are a number.
        unsafe { self.0.at(offset).cast().read_volatile() }
    }
}

#[cfg(target_arch = "x86_64")]
fn load_fence() {
    // SAFETY: every x86-64 processor has SSE2.
    unsafe { std::arch::x86_64::_mm_lfence() };
}

#[cfg(not(target_arch = "x86_64"))]
fn load_fence() {
    fence(Ordering::Acquire);
}

/// On x86-64 this is MFENCE or a locked instruction.
fn full_fence() {
    fence(Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_do_not_overlap_the_positions_and_end_in_the_memory() {
        for size in [MIN_PACKET, MAX_PACKET] {
            assert_eq!(Layout::Slot.packet(9, size), 8);
            assert_eq!(Layout::UnalignedSlot.packet(9, size), 68);
            let slots = (RING_BYTES / size) as u64;
            assert_eq!(Layout::Ring.packet(slots, size), 2 * RING_TAIL);
            let end = Layout::Ring.packet(slots - 1, size) + size;
            assert_eq!(end, 2 * RING_TAIL + RING_BYTES);
            assert!(end <= MAP_BYTES.get());
        }
    }

    #[test]
    fn a_torn_packet_is_none() {
        let mut bytes = [7; MIN_PACKET];
        bytes[..8].copy_from_slice(&0x107_u64.to_ne_bytes());
        bytes[8..16].copy_from_slice(&12_u64.to_ne_bytes());
        let packet = Packet::parse(&bytes).expect("the payload is that of 0x107");
        assert_eq!((packet.sequence, packet.time_ns), (0x107, 12));
        bytes[63] = 6;
        assert_eq!(Packet::parse(&bytes), None);
        assert_eq!(Packet::parse(&bytes[..31]), None);
    }
}
