// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shared memory with POSIX semaphores, as in textbooks: a ring of 1024 messages of one size, with one semaphore for the
//! empty slots, one for the full slots, and one as a mutex. A reference implementation, deliberately not optimized.

use std::cell::UnsafeCell;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, ensure};
use nix::errno::Errno;
use nix::sys::statvfs::statvfs;
use sluice_testkit::shared_memory::SharedMemory;
use sluice_testkit::units;

use super::link::{MarksEnd, ensure_fits};
use super::mechanism::failure;
use super::temp_paths::{MEMORY, memory_file};
use super::{Link, Mechanism, Receiver, Sender};
use crate::harness::waiting::Waiting;

const BUFFER_SIZE: usize = 1024;
/// A round trip has one ring per direction.
const MOST_RINGS: u64 = 2;

pub fn mechanism() -> Mechanism {
    Mechanism {
        unsupported_reason: Box::new(|task| failure(expect_memory(task.size))),
        ..Mechanism::new("shm-sem", Waiting::Sleep, |size| {
            let sender = |buffer| Ok(MarksEnd(buffer));
            Ok(Link::new(Buffer::new(size)?, sender, Ok))
        })
    }
}

/// Touching shared memory beyond a full tmpfs raises SIGBUS.
fn expect_memory(size: usize) -> Result<()> {
    let needed = len(size) as u64 * MOST_RINGS;
    let status = statvfs(MEMORY).with_context(|| format!("cannot use {MEMORY}"))?;
    let free = status.blocks_available() * status.fragment_size();
    ensure!(
        free >= needed,
        "{BUFFER_SIZE} messages of {} need {needed} bytes, but {MEMORY} has {free}; remount it with a larger size",
        units::size(size)
    );
    Ok(())
}

/// The messages follow. They are `struct { char data[size]; int len; }`.
#[repr(C)]
struct Header {
    empty: Semaphore,
    full: Semaphore,
    mutex: Semaphore,
    /// Read and written only with the mutex.
    head: AtomicUsize,
    tail: AtomicUsize,
}

#[repr(C, align(128))]
struct Semaphore(UnsafeCell<libc::sem_t>);

fn length_at(size: usize) -> usize {
    size.next_multiple_of(align_of::<i32>())
}

fn stride(size: usize) -> usize {
    length_at(size) + size_of::<i32>()
}

fn len(size: usize) -> usize {
    size_of::<Header>() + BUFFER_SIZE * stride(size)
}

impl Semaphore {
    fn set(&self, value: u32) -> Result<()> {
        // SAFETY: nobody uses the semaphore yet, and processes may share it.
        let set = Errno::result(unsafe { libc::sem_init(self.0.get(), 1, value) });
        set.map(drop).context("cannot create a semaphore")
    }

    fn wait(&self) -> Result<()> {
        loop {
            // SAFETY: the semaphore exists as long as self.
            match Errno::result(unsafe { libc::sem_wait(self.0.get()) }) {
                Err(Errno::EINTR) => {}
                other => return other.map(drop).context("cannot wait for a semaphore"),
            }
        }
    }

    fn post(&self) -> Result<()> {
        // SAFETY: the semaphore exists as long as self.
        let posted = Errno::result(unsafe { libc::sem_post(self.0.get()) });
        posted.map(drop).context("cannot post a semaphore")
    }
}

struct Buffer {
    memory: SharedMemory,
    size: usize,
}

impl Buffer {
    fn new(size: usize) -> Result<Self> {
        let len = NonZeroUsize::new(len(size)).context("a ring is never empty")?;
        let memory = SharedMemory::of_file(memory_file(len.get())?, 0, len)?;
        let buffer = Self { memory, size };
        buffer.header().empty.set(BUFFER_SIZE as u32)?;
        buffer.header().full.set(0)?;
        buffer.header().mutex.set(1)?;
        Ok(buffer)
    }

    fn header(&self) -> &Header {
        // SAFETY: the mapping is page-aligned and zeroed, and begins with a header that is only used as such.
        unsafe { self.memory.at(0).cast().as_ref() }
    }

    /// Returns the slot at the head or the tail, and advances that index. Requires the mutex.
    fn next_slot(&self, index: &AtomicUsize) -> *mut u8 {
        let at = index.load(Ordering::Relaxed) % BUFFER_SIZE;
        index.store((at + 1) % BUFFER_SIZE, Ordering::Relaxed);
        let slot = size_of::<Header>() + at * stride(self.size);
        self.memory.at(slot).as_ptr()
    }
}

impl Sender for Buffer {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        let len = message.len();
        ensure_fits(len, self.size)?;
        let header = self.header();
        header.empty.wait()?;
        header.mutex.wait()?;
        let slot = self.next_slot(&header.tail);
        // SAFETY: the slot has space for a message of this size and its length, and this process holds the mutex.
        unsafe {
            slot.copy_from_nonoverlapping(message.as_ptr(), len);
            slot.add(length_at(self.size))
                .cast::<i32>()
                .write(len as i32);
        }
        header.mutex.post()?;
        header.full.post()
    }
}

impl Receiver for Buffer {
    fn receive(&mut self, message: &mut [u8]) -> Result<usize> {
        let header = self.header();
        header.full.wait()?;
        header.mutex.wait()?;
        let slot = self.next_slot(&header.head);
        // SAFETY: the sender has written the slot, and this process holds the mutex.
        let len = unsafe { slot.add(length_at(self.size)).cast::<i32>().read() } as usize;
        ensure_fits(len, message.len().min(self.size))?;
        // SAFETY: both buffers have at least `len` bytes.
        unsafe { slot.copy_to_nonoverlapping(message.as_mut_ptr(), len) };
        header.mutex.post()?;
        header.empty.post()?;
        Ok(len)
    }
}
