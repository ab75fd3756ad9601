// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file in memory that outlives the process in the service manager: a page of counts, and bytes that are mapped twice in a row.

use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::AtomicU64;

use anyhow::{Context as _, Result, ensure};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::libc;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mlock, mmap, mmap_anonymous, munmap};
use nix::sys::stat::fstat;
use nix::unistd::ftruncate;

use crate::log;

#[derive(Debug)]
pub struct WindowMemory {
    file: OwnedFd,
    start: NonNull<c_void>,
    page: usize,
    capacity: usize,
}

impl WindowMemory {
    /// Room for at least this number of bytes.
    pub fn new(bytes: usize) -> Result<Self> {
        let page = page_size();
        let capacity = bytes.max(page).next_power_of_two();
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let file =
            memfd_create("sluice-bridge", flags).context("cannot create a file in memory")?;
        let len = i64::try_from(page + capacity).context("too many bytes in flight")?;
        ftruncate(&file, len).context("cannot set the size of a file in memory")?;
        // Nobody can take the memory away under the mapping.
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).context("cannot seal a file in memory")?;
        Self::map(file, page, capacity)
    }

    /// That of an earlier process.
    pub fn restore(file: OwnedFd) -> Result<Self> {
        let page = page_size();
        let seals = fcntl(&file, FcntlArg::F_GET_SEALS).context("it is no file in memory")?;
        ensure!(
            SealFlag::from_bits_truncate(seals).contains(SealFlag::F_SEAL_SHRINK),
            "it can be shortened"
        );
        let len = fstat(&file).context("its size is unknown")?.st_size;
        let capacity = usize::try_from(len).unwrap_or(0).saturating_sub(page);
        ensure!(
            capacity.is_power_of_two() && capacity >= page,
            "it has {len} bytes, which are no page and a power of two"
        );
        Self::map(file, page, capacity)
    }

    fn map(file: OwnedFd, page: usize, capacity: usize) -> Result<Self> {
        let len = page + 2 * capacity;
        // SAFETY: the kernel chooses unused addresses.
        let start = unsafe {
            let (protection, flags) = (ProtFlags::PROT_NONE, MapFlags::MAP_PRIVATE);
            mmap_anonymous(None, non_zero(len)?, protection, flags)
        };
        let memory = Self {
            file,
            start: start.context("there are no addresses for the bytes in flight")?,
            page,
            capacity,
        };
        memory.fill(0, page + capacity, 0)?;
        memory.fill(page + capacity, capacity, page)?;
        // A page that is not present would delay a copy of the kernel, which a kill could then end in part.
        // SAFETY: the addresses are mapped.
        if let Err(errno) = unsafe { mlock(memory.start, len) } {
            log::line(format_args!(
                "cannot lock {len} bytes in memory: {}; raise LimitMEMLOCK of the service",
                errno.desc()
            ));
        }
        Ok(memory)
    }

    /// Maps a part of the file to a part of the reserved addresses.
    fn fill(&self, at: usize, bytes: usize, offset: usize) -> Result<()> {
        let address = non_zero(self.start.as_ptr() as usize + at)?;
        let flags = MapFlags::MAP_SHARED | MapFlags::MAP_FIXED | MapFlags::MAP_POPULATE;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let offset = i64::try_from(offset).context("too many bytes in flight")?;
        // SAFETY: the addresses are reserved, and nothing refers to them yet.
        unsafe {
            mmap(
                Some(address),
                non_zero(bytes)?,
                protection,
                flags,
                &self.file,
                offset,
            )
        }
        .context("cannot map the bytes in flight; permit the bridge more memory")?;
        Ok(())
    }

    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// One of the counts, of which there are as many as fit into a page.
    pub fn count(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.page / size_of::<AtomicU64>());
        // SAFETY: it is within the first page, aligned, and only accessed as this.
        unsafe { self.start.cast::<AtomicU64>().add(index).as_ref() }
    }

    /// Bytes from a position on, modulo the capacity; not more than that.
    pub fn bytes(&self, position: u64, len: usize) -> &[u8] {
        // SAFETY: within the mapping; a mutable borrow would exclude this one.
        unsafe { slice::from_raw_parts(self.at(position, len).as_ptr(), len) }
    }

    pub fn bytes_mut(&mut self, position: u64, len: usize) -> &mut [u8] {
        // SAFETY: within the mapping. The bytes are mapped twice, but at most a capacity of them is borrowed.
        unsafe { slice::from_raw_parts_mut(self.at(position, len).as_ptr(), len) }
    }

    fn at(&self, position: u64, len: usize) -> NonNull<u8> {
        assert!(len <= self.capacity);
        let offset = position as usize & (self.capacity - 1);
        // SAFETY: the mapping has twice the capacity after the page.
        unsafe { self.start.cast().add(self.page + offset) }
    }
}

impl AsFd for WindowMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for WindowMemory {
    fn drop(&mut self) {
        // SAFETY: nothing borrows it any more.
        let _ = unsafe { munmap(self.start, self.page + 2 * self.capacity) };
    }
}

fn page_size() -> usize {
    // SAFETY: it only returns a value.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

fn non_zero(value: usize) -> Result<NonZeroUsize> {
    NonZeroUsize::new(value).context("too few bytes in flight")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_are_contiguous_at_the_end() {
        let mut memory = WindowMemory::new(1).unwrap();
        let capacity = memory.capacity();
        memory
            .bytes_mut(capacity as u64 - 2, 4)
            .copy_from_slice(b"abcd");
        assert_eq!(memory.bytes(0, 2), b"cd");
        assert_eq!(memory.bytes(3 * capacity as u64 - 2, 4), b"abcd");
    }

    #[test]
    fn another_process_finds_what_was_written() {
        let mut memory = WindowMemory::new(100_000).unwrap();
        memory.bytes_mut(5, 3).copy_from_slice(b"abc");
        memory
            .count(1)
            .store(7, std::sync::atomic::Ordering::Relaxed);
        let file = memory.as_fd().try_clone_to_owned().unwrap();
        drop(memory);
        let memory = WindowMemory::restore(file).unwrap();
        assert_eq!(
            (memory.capacity(), memory.bytes(5, 3)),
            (131_072, &b"abc"[..])
        );
        assert_eq!(
            memory.count(1).load(std::sync::atomic::Ordering::Relaxed),
            7
        );
    }

    #[test]
    fn another_file_is_refused() {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(WindowMemory::restore(file.into()).is_err());
    }
}
