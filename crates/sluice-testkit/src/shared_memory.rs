// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that forked processes share.

use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use anyhow::{Context, Result};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, mmap_anonymous, mprotect, munmap};

/// Page-aligned and zeroed; unmapped when dropped.
pub struct SharedMemory {
    start: NonNull<u8>,
    len: NonZeroUsize,
}

fn access() -> ProtFlags {
    ProtFlags::PROT_READ | ProtFlags::PROT_WRITE
}

impl SharedMemory {
    /// Inherited by processes that are forked while it exists. Only pages that are touched take memory.
    pub fn anonymous(len: NonZeroUsize) -> Result<Self> {
        let flags = MapFlags::MAP_SHARED | MapFlags::MAP_NORESERVE;
        // SAFETY: the kernel chooses the address, so the new mapping aliases nothing.
        let start = unsafe { mmap_anonymous(None, len, access(), flags) };
        let start = start.with_context(|| format!("cannot map {len} bytes of shared memory"))?;
        Ok(Self {
            start: start.cast(),
            len,
        })
    }

    pub fn of_file(file: impl AsFd, offset: usize, len: NonZeroUsize) -> Result<Self> {
        let offset = offset.try_into()?;
        // SAFETY: as above; the file is not truncated while it is mapped.
        let start = unsafe { mmap(None, len, access(), MapFlags::MAP_SHARED, file, offset) };
        let start = start.with_context(|| format!("cannot map {len} bytes of a shared file"))?;
        Ok(Self {
            start: start.cast(),
            len,
        })
    }

    /// Makes the mapping read-only in this process; processes that were forked before are not affected.
    pub fn make_read_only(&self) -> Result<()> {
        // SAFETY: all users of the memory borrow self, and a store of this process would only fault.
        unsafe { mprotect(self.start.cast(), self.len.get(), ProtFlags::PROT_READ) }
            .context("cannot make shared memory read-only")
    }

    pub fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < self.len.get(), "the offset is inside the mapping");
        // SAFETY: the offset was checked above.
        unsafe { self.start.add(offset) }
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: all users of the memory borrow self.
        unsafe { munmap(self.start.cast(), self.len.get()) }.expect("the mapping is valid");
    }
}
