// SPDX-License-Identifier: MIT OR Apache-2.0
//! A ring of bytes in a file on tmpfs that both processes map. Memory has no blocking wait, so both sides poll and call
//! sched_yield(2) between two polls: on one processor it runs the peer, and on two it costs little more than the poll.
//! Sleeping between polls would add its duration to every reply, so a side sleeps only after a long unsuccessful wait,
//! which leaves the processor to others.

use std::cell::UnsafeCell;
use std::num::NonZeroUsize;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sched::sched_yield;
use sluice_testkit::shared_memory::SharedMemory;

use super::temp_paths::memory_file;
use super::{Link, Mechanism, Receiver, Sender};
use crate::harness::waiting::Waiting;

/// The capacity of pipe(2), so that the capacity makes no difference.
const CAPACITY: usize = 64 * 1024;
/// Bytes are published in pieces of this size, so that the peer copies while more are written.
const MAX_PIECE: usize = CAPACITY / 4;
/// About one millisecond, far longer than a reply takes.
const YIELDS_BEFORE_SLEEP: usize = 2000;
const SLEEP: Duration = Duration::from_millis(1);

pub fn mechanism() -> Mechanism {
    Mechanism::new("mmap", Waiting::Spin, |_| {
        let file = memory_file(LENGTH.get())?;
        // Written once, so that a full tmpfs is an error here and not a SIGBUS later.
        let written = file.write_all_at(&[0; LENGTH.get()], 0);
        written.context("cannot fill a file in memory")?;
        Ok(Link::new(
            SharedMemory::of_file(&file, 0, LENGTH)?,
            |memory| Ok(Side::<SENDER>::new(memory)),
            |memory| Ok(Side::<RECEIVER>::new(memory)),
        ))
    })
}

const SENDER: usize = 0;
const RECEIVER: usize = 1;

#[repr(C)]
struct Ring {
    positions: [Position; 2],
    bytes: [UnsafeCell<u8>; CAPACITY],
}

/// Of one side, in its own cache line.
#[repr(C, align(128))]
struct Position {
    /// All bytes that it ever wrote or read.
    count: AtomicUsize,
    ended: AtomicBool,
}

const LENGTH: NonZeroUsize = NonZeroUsize::new(size_of::<Ring>()).expect("a ring is not empty");

struct Side<const NUMBER: usize> {
    memory: SharedMemory,
    /// The count of this side, which no other process advances.
    own: usize,
    /// The cached count of the peer, which avoids accesses to its cache line.
    other: usize,
}

impl<const NUMBER: usize> Side<NUMBER> {
    fn new(memory: SharedMemory) -> Self {
        let (own, other) = (0, 0);
        Self { memory, own, other }
    }

    fn ring(&self) -> &Ring {
        // SAFETY: the mapping is page-aligned, as long as a ring and as long-lived as self; zeros are an empty ring.
        unsafe { self.memory.at(0).cast().as_ref() }
    }

    /// The two pieces of the ring that hold the next bytes of this side.
    fn pieces(&self, len: usize) -> [NonNull<[u8]>; 2] {
        let at = self.own % CAPACITY;
        let first = len.min(CAPACITY - at);
        let piece = |at, len| {
            let start = self.memory.at(std::mem::offset_of!(Ring, bytes) + at);
            NonNull::slice_from_raw_parts(start, len)
        };
        [piece(at, first), piece(0, len - first)]
    }

    /// Waits until `enough` accepts the count of the peer; false if the peer ended before.
    fn wait(&mut self, enough: impl Fn(usize) -> bool) -> Result<bool> {
        let mut polls = 0;
        while !enough(self.other) {
            // In this order, so that counts published before the end are seen.
            let ended = polls >= YIELDS_BEFORE_SLEEP && self.peer().ended.load(Ordering::Acquire);
            self.other = self.peer().count.load(Ordering::Acquire);
            match enough(self.other) {
                true => break,
                false if ended => return Ok(false),
                false if polls < YIELDS_BEFORE_SLEEP => sched_yield()?,
                false => sleep(SLEEP),
            }
            polls += 1;
        }
        Ok(true)
    }

    fn peer(&self) -> &Position {
        &self.ring().positions[1 - NUMBER]
    }

    fn advance(&mut self, len: usize) {
        self.own += len;
        let position = &self.ring().positions[NUMBER];
        position.count.store(self.own, Ordering::Release);
    }
}

impl<const NUMBER: usize> Drop for Side<NUMBER> {
    fn drop(&mut self) {
        let position = &self.ring().positions[NUMBER];
        position.ended.store(true, Ordering::Release);
    }
}

impl Sender for Side<SENDER> {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        let mut remaining = message;
        while !remaining.is_empty() {
            let own = self.own;
            let has_space = self.wait(|read| own - read < CAPACITY)?;
            ensure!(has_space, "cannot send a message: the receiver has ended");
            let space = CAPACITY - (own - self.other);
            let (now, later) = remaining.split_at(remaining.len().min(space).min(MAX_PIECE));
            let [mut first, mut second] = self.pieces(now.len());
            let (before, after) = now.split_at(first.len());
            // SAFETY: the receiver has read the old bytes, and does not read new ones before they are published.
            unsafe {
                first.as_mut().copy_from_slice(before);
                second.as_mut().copy_from_slice(after);
            }
            self.advance(now.len());
            remaining = later;
        }
        Ok(())
    }
}

impl Receiver for Side<RECEIVER> {
    fn receive(&mut self, message: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while filled < message.len() {
            let own = self.own;
            if !self.wait(|written| written > own)? {
                break;
            }
            let available = self.other - own;
            let len = available.min(message.len() - filled).min(MAX_PIECE);
            for piece in self.pieces(len) {
                // SAFETY: the sender has published these bytes, and does not overwrite them before they are released.
                let bytes = unsafe { piece.as_ref() };
                message[filled..][..bytes.len()].copy_from_slice(bytes);
                filled += bytes.len();
            }
            self.advance(len);
        }
        Ok(filled)
    }
}
