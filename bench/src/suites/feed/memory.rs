// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ring of a feed, mapped by its consumer.

use std::fs::File;
use std::num::NonZeroUsize;
use std::ptr::NonNull;

use anyhow::{Context, Result};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::unistd::{SysconfVar, sysconf};
use sluice_abi::ring::{MMAP_CONSUMER, MMAP_DATA, MMAP_PRODUCER};
use sluice_ring::sync::AtomicU32;
use sluice_ring::{Capacity, Ctrl, Memory};

/// One region of the endpoint; unmapped when dropped.
struct Region {
    start: NonNull<u8>,
    bytes: NonZeroUsize,
}

impl Region {
    /// Faults in all pages, so that no packet waits for it.
    fn map(file: &File, offset: u64, bytes: u64, access: ProtFlags) -> Result<Self> {
        let bytes = NonZeroUsize::try_from(usize::try_from(bytes)?)?;
        let flags = MapFlags::MAP_SHARED | MapFlags::MAP_POPULATE;
        // SAFETY: the kernel chooses the address, so the new mapping aliases nothing.
        let start = unsafe { mmap(None, bytes, access, flags, file, offset as i64) };
        let start = start.context("cannot map the ring of the feed")?.cast();
        Ok(Self { start, bytes })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: all users of the memory borrow the mapping.
        unsafe { munmap(self.start.cast(), self.bytes.get()) }.expect("the mapping is valid");
    }
}

pub struct Mapping {
    capacity: Capacity,
    producer: Region,
    consumer: Region,
    /// Mapped twice in a row.
    data: Region,
}

impl Mapping {
    pub fn new(feed: &File, capacity: u64) -> Result<Self> {
        let page = sysconf(SysconfVar::PAGE_SIZE)?.context("the page size is unknown")? as u64;
        let capacity = Capacity::exactly(capacity, page)?;
        let (read, write) = (ProtFlags::PROT_READ, ProtFlags::PROT_WRITE);
        Ok(Self {
            capacity,
            producer: Region::map(feed, MMAP_PRODUCER, page, read)?,
            consumer: Region::map(feed, MMAP_CONSUMER, page, read | write)?,
            data: Region::map(feed, MMAP_DATA, 2 * capacity.bytes(), read)?,
        })
    }

    fn at(&self, position: u64) -> NonNull<u8> {
        let offset = position & (self.capacity.bytes() - 1);
        // SAFETY: the offset is below the capacity.
        unsafe { self.data.start.add(offset as usize) }
    }
}

impl Memory for Mapping {
    fn capacity(&self) -> Capacity {
        self.capacity
    }

    fn producer(&self) -> &Ctrl {
        // SAFETY: the region is a page, and its beginning is only accessed as a Ctrl of atomics.
        unsafe { self.producer.start.cast().as_ref() }
    }

    fn consumer(&self) -> &Ctrl {
        // SAFETY: as above.
        unsafe { self.consumer.start.cast().as_ref() }
    }

    fn word(&self, position: u64) -> &AtomicU32 {
        // SAFETY: it is within the mapping and aligned.
        unsafe { self.at(position & !3).cast().as_ref() }
    }

    #[cfg(target_arch = "x86_64")]
    fn prefetch(&self, position: u64) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch has no effect on memory, for any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(self.at(position).as_ptr().cast()) }
    }

    /// Not an access of Rust, where it would race with the producer's.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    fn touch(&self, position: u64) {
        let line = self.at(position).as_ptr();
        // SAFETY: it is within the mapping, which has a second copy of the data after the last byte.
        unsafe {
            std::arch::asm!("mov {value:e}, dword ptr [{line}]", line = in(reg) line, value = out(reg) _,
                options(nostack, preserves_flags, readonly));
        }
    }
}
