// SPDX-License-Identifier: MIT OR Apache-2.0
//! User memory with inaccessible pages, and system calls with raw pointers.

use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

use anyhow::{Context, Result};
use nix::errno::Errno;

pub const PAGE: usize = 4096;

/// A private anonymous mapping.
pub struct Mapping {
    start: *mut u8,
    len: usize,
}

impl Mapping {
    pub fn new(pages: usize) -> Result<Self> {
        Self::with_flags(pages * PAGE, libc::MAP_PRIVATE)
    }

    pub fn with_flags(len: usize, flags: libc::c_int) -> Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_ANONYMOUS | flags;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(Errno::last()).with_context(|| format!("mapping {len} bytes"));
        }
        Ok(Mapping {
            start: start.cast(),
            len,
        })
    }

    pub fn start(&self) -> *mut u8 {
        self.start
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Fills it byte by byte, possibly while others read it.
    pub fn fill(&self, byte: u8) {
        for offset in 0..self.len {
            // SAFETY: within our own mapping, to which no Rust reference exists; single bytes cannot tear.
            unsafe { self.start.add(offset).write_volatile(byte) };
        }
    }

    /// Discards the pages: the next access faults, and finds the old content if the mapping is shared, zeros otherwise.
    pub fn discard_pages(&self) -> Result<()> {
        // SAFETY: our own mapping, to which no Rust reference exists.
        let ret = unsafe { libc::madvise(self.start.cast(), self.len, libc::MADV_DONTNEED) };
        Errno::result(ret).context("forgetting the pages of a mapping")?;
        Ok(())
    }

    /// Changes the protection of everything from `offset`, a multiple of a page, to these `PROT_*`.
    pub fn protect_from(&self, offset: usize, protection: libc::c_int) -> Result<()> {
        let (start, len) = (self.start.wrapping_add(offset), self.len - offset);
        // SAFETY: pages of our own mapping, to which no Rust reference exists.
        let ret = unsafe { libc::mprotect(start.cast(), len, protection) };
        Errno::result(ret).context("protecting a part of a mapping")?;
        Ok(())
    }

    /// Replaces the last page by the first one of this file.
    pub fn map_last_page(&self, file: &impl AsFd) -> Result<()> {
        let last = self.start.wrapping_add(self.len - PAGE).cast();
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let (flags, fd) = (libc::MAP_SHARED | libc::MAP_FIXED, file.as_fd());
        // SAFETY: replaces only a page of our own mapping, to which no Rust reference exists.
        let mapped = unsafe { libc::mmap(last, PAGE, protection, flags, fd.as_raw_fd(), 0) };
        if mapped == libc::MAP_FAILED {
            return Err(Errno::last()).context("mapping a page of a file");
        }
        Ok(())
    }

    /// Makes everything from `offset`, a multiple of a page, inaccessible. The addresses stay reserved, so that any
    /// access faults.
    pub fn unmap_from(&self, offset: usize) -> Result<()> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
        let (start, len) = (self.start.wrapping_add(offset), self.len - offset);
        // SAFETY: replaces only pages of our own mapping, to which no Rust reference exists.
        let mapped = unsafe { libc::mmap(start.cast(), len, libc::PROT_NONE, flags, -1, 0) };
        if mapped == libc::MAP_FAILED {
            return Err(Errno::last()).context("unmapping a part of a mapping");
        }
        Ok(())
    }
}

// SAFETY: a mapping is only an address range; accesses to it are unsafe where they happen.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which is not accessible after this value is dropped.
        unsafe { libc::munmap(self.start.cast(), self.len) };
    }
}

/// A buffer that ends right before an inaccessible page.
pub struct GuardedBuffer {
    mapping: Mapping,
    usable: usize,
}

impl GuardedBuffer {
    pub fn new(usable: usize) -> Result<Self> {
        let mapping = Mapping::new(usable.div_ceil(PAGE) + 1)?;
        mapping.protect_from(mapping.len() - PAGE, libc::PROT_NONE)?;
        Ok(GuardedBuffer { mapping, usable })
    }

    /// `len()` usable bytes start here.
    pub fn start(&self) -> *mut u8 {
        let edge = self.mapping.len() - PAGE;
        // SAFETY: stays within the mapping: its size includes the usable bytes before its last page.
        unsafe { self.mapping.start.add(edge - self.usable) }
    }

    pub fn fill_from(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.usable, "the buffer is too small");
        // SAFETY: the destination is ours and large enough, and no Rust reference to it exists.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.start(), bytes.len()) };
    }

    pub fn to_vec(&self, count: usize) -> Vec<u8> {
        assert!(count <= self.usable, "the buffer has fewer bytes");
        // SAFETY: our own readable memory, which is not written meanwhile.
        unsafe { std::slice::from_raw_parts(self.start(), count) }.to_vec()
    }
}

/// read(2) into any address; EFAULT if it is invalid.
pub fn read_at(fd: &impl AsFd, start: *mut u8, len: usize) -> nix::Result<usize> {
    // SAFETY: the kernel checks the range, and callers pass memory that no Rust reference covers.
    let count = unsafe { libc::read(fd.as_fd().as_raw_fd(), start.cast(), len) };
    Errno::result(count).map(|count| count as usize)
}

/// write(2) from any address.
pub fn write_at(fd: &impl AsFd, start: *const u8, len: usize) -> nix::Result<usize> {
    // SAFETY: the kernel only reads, and checks the range.
    let count = unsafe { libc::write(fd.as_fd().as_raw_fd(), start.cast(), len) };
    Errno::result(count).map(|count| count as usize)
}
