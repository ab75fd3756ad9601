// SPDX-License-Identifier: MIT OR Apache-2.0

use std::os::fd::{AsFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

/// The seals that a ring's file requires.
pub const SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::FUTURE_WRITE)
    .union(SealFlags::SEAL);

/// An unsealed memfd of this size.
pub fn memfd(bytes: u64) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create("sluice-malicious", flags).expect("no memfd");
    ftruncate(&file, bytes).expect("not resized");
    file
}

pub fn seal(file: &OwnedFd, seals: SealFlags) {
    fcntl_add_seals(file, seals).expect("not sealed");
}

/// A mapping of a side's memory. All accesses are atomic, because the other side accesses them concurrently.
#[derive(Debug)]
pub struct Memory {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping belongs to the process, and its bytes are only accessed as atomics.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    pub fn map_writable(file: &impl AsFd, bytes: usize) -> Self {
        Self::map(file, bytes, ProtFlags::READ | ProtFlags::WRITE)
    }

    pub fn map_read_only(file: &impl AsFd, bytes: usize) -> Self {
        Self::map(file, bytes, ProtFlags::READ)
    }

    fn map(file: &impl AsFd, bytes: usize, access: ProtFlags) -> Self {
        // SAFETY: the kernel chooses an unused address range.
        let start = unsafe { mmap(ptr::null_mut(), bytes, access, MapFlags::SHARED, file, 0) };
        let start = start.expect("not mapped").cast();
        Self {
            start: NonNull::new(start).expect("mapped at zero"),
            bytes,
        }
    }

    /// Addresses without access.
    pub(crate) fn reserve(bytes: usize) -> Self {
        // SAFETY: the kernel chooses an unused address range.
        let start = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                bytes,
                ProtFlags::empty(),
                MapFlags::PRIVATE,
            )
        };
        let start = start.expect("not mapped").cast();
        Self {
            start: NonNull::new(start).expect("mapped at zero"),
            bytes,
        }
    }

    /// Maps a part of a file at an offset of this memory, of which nothing is used yet.
    pub(crate) fn replace(
        &self,
        at: usize,
        file: &impl AsFd,
        offset: u64,
        bytes: usize,
        access: ProtFlags,
    ) {
        assert!(at + bytes <= self.bytes);
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: the assertion above keeps it within the mapping, to which nothing refers.
        let mapped = unsafe {
            let start = self.start.as_ptr().add(at).cast();
            mmap(start, bytes, access, flags, file, offset)
        };
        mapped.expect("not mapped");
    }

    fn pointer_to<T>(&self, at: usize) -> NonNull<T> {
        assert!(at % align_of::<T>() == 0 && at + size_of::<T>() <= self.bytes);
        // SAFETY: the assertion above keeps it within the mapping.
        unsafe { self.start.add(at).cast() }
    }

    pub fn word(&self, at: usize) -> &AtomicU32 {
        // SAFETY: it is aligned, stays mapped as long as self exists, and is only accessed as an atomic.
        unsafe { self.pointer_to(at).as_ref() }
    }

    pub fn long(&self, at: usize) -> &AtomicU64 {
        // SAFETY: as above.
        unsafe { self.pointer_to(at).as_ref() }
    }

    pub fn byte(&self, at: usize) -> &AtomicU8 {
        // SAFETY: as above.
        unsafe { self.pointer_to(at).as_ref() }
    }

    pub fn write(&self, at: usize, bytes: &[u8]) {
        for (offset, &byte) in bytes.iter().enumerate() {
            self.byte(at + offset).store(byte, Ordering::Relaxed);
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: every reference into the mapping borrows self, so none is left.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
