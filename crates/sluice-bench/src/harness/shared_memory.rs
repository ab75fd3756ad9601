// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that two forked processes see both.

use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use anyhow::{Context, Result};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, mmap_anonymous, mprotect, munmap};

/// Begins at a page, zeroed; unmapped when dropped.
pub struct SharedMemory {
    start: NonNull<u8>,
    len: NonZeroUsize,
}

fn access() -> ProtFlags {
    ProtFlags::PROT_READ | ProtFlags::PROT_WRITE
}

impl SharedMemory {
    /// Reaches the processes that are forked while it is there.
    pub fn nameless(len: NonZeroUsize) -> Result<Self> {
        // SAFETY: a new mapping at an address that the kernel chooses aliases nothing.
        let start = unsafe { mmap_anonymous(None, len, access(), MapFlags::MAP_SHARED) };
        let start = start.with_context(|| format!("cannot map {len} bytes of shared memory"))?;
        Ok(Self {
            start: start.cast(),
            len,
        })
    }

    pub fn of_file(file: impl AsFd, len: NonZeroUsize) -> Result<Self> {
        // SAFETY: as above; and nobody shortens the file.
        let start = unsafe { mmap(None, len, access(), MapFlags::MAP_SHARED, file, 0) };
        let start = start.with_context(|| format!("cannot map {len} bytes of a shared file"))?;
        Ok(Self {
            start: start.cast(),
            len,
        })
    }

    /// From now on this process can only read it; those that were forked before are not concerned.
    pub fn only_read(&self) -> Result<()> {
        // SAFETY: whoever uses the memory holds self, and a store of this process would be a fault and nothing else.
        unsafe { mprotect(self.start.cast(), self.len.get(), ProtFlags::PROT_READ) }
            .context("cannot take away from oneself the right to write to shared memory")
    }

    pub fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < self.len.get(), "inside of the mapping");
        // SAFETY: just asserted.
        unsafe { self.start.add(offset) }
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: whoever uses the memory holds self.
        unsafe { munmap(self.start.cast(), self.len.get()) }.expect("the mapping is ours");
    }
}
