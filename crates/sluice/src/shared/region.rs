// SPDX-License-Identifier: MIT OR Apache-2.0
//! A mapping of a part of a memfd or of an endpoint.

use std::ffi::c_void;
use std::os::fd::AsFd;
use std::ptr::{self, NonNull};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mlock, mmap, mmap_anonymous, munmap};

/// The page size of the machine.
pub(crate) fn page_size() -> u64 {
    // SAFETY: sysconf() only returns a value. rustix's page_size() reads memory that valgrind has removed.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as u64 }
}

/// The protection of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    ReadWrite,
    ReadOnly,
}

/// A mapping, which is unmapped when it is dropped.
#[derive(Debug)]
pub(crate) struct Region {
    start: NonNull<c_void>,
    bytes: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread; its user orders the accesses.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Maps `bytes` bytes from `offset`, a multiple of the page size, which is that of the machine.
    pub fn map(file: &impl AsFd, offset: u64, bytes: usize, access: Access) -> Result<Self, Errno> {
        Self::map_aligned(file, offset, bytes, page_size() as usize, access)
    }

    /// Maps `bytes` bytes from `offset`, both multiples of the file's page size, `align`, at an address that is one, too.
    ///
    /// At reserved addresses: where the kernel chooses those of a mapping of some MiB, it may align them to a huge page. The
    /// same positions of two rings would then compete for the same entries of the processor's translation cache. Measured in
    /// an emulator, where each address has one entry: a round trip over two rings of 1 MiB takes 1.4 times as long.
    pub fn map_aligned(
        file: &impl AsFd,
        offset: u64,
        bytes: usize,
        align: usize,
        access: Access,
    ) -> Result<Self, Errno> {
        let place = Self::reserve(bytes, align)?;
        place.fill(0, bytes, file, offset, access)?;
        Ok(place)
    }

    /// Maps the same bytes twice in a row, at an address that is a multiple of `align`.
    pub fn map_mirrored(
        file: &impl AsFd,
        offset: u64,
        bytes: usize,
        align: usize,
        access: Access,
    ) -> Result<Self, Errno> {
        let place = Self::reserve(2 * bytes, align)?;
        for half in [0, bytes] {
            place.fill(half, bytes, file, offset, access)?;
        }
        Ok(place)
    }

    /// Maps a part of the file to a part of these reserved addresses.
    fn fill(
        &self,
        at: usize,
        bytes: usize,
        file: &impl AsFd,
        offset: u64,
        access: Access,
    ) -> Result<(), Errno> {
        assert!(at + bytes <= self.bytes);
        // SAFETY: the addresses are reserved and otherwise unused.
        unsafe {
            mmap(
                self.at(at).as_ptr(),
                bytes,
                access.protection(),
                MapFlags::SHARED | MapFlags::FIXED,
                file,
                offset,
            )?;
        }
        Ok(())
    }

    /// Reserves unused addresses.
    fn reserve(bytes: usize, align: usize) -> Result<Self, Errno> {
        // Addresses are multiples of the page size in any case.
        let more = align.saturating_sub(page_size() as usize);
        let all = bytes.checked_add(more).ok_or(Errno::NOMEM)?;
        // SAFETY: the kernel chooses unused addresses.
        let start =
            unsafe { mmap_anonymous(ptr::null_mut(), all, ProtFlags::empty(), MapFlags::PRIVATE)? };
        let before = start.cast::<u8>().align_offset(align);
        let region = Self::taken(start, all).ok_or(Errno::NOMEM)?;
        Ok(region.keep(before, bytes))
    }

    fn taken(start: *mut c_void, bytes: usize) -> Option<Self> {
        NonNull::new(start).map(|start| Self { start, bytes })
    }

    /// Unmaps the addresses before and after the kept ones.
    fn keep(self, before: usize, bytes: usize) -> Self {
        let kept = Self {
            start: self.at(before),
            bytes,
        };
        let behind = before + bytes;
        for (from, length) in [(0, before), (behind, self.bytes - behind)] {
            if length > 0 {
                // SAFETY: these addresses are not used. It fails only if a page would have to be split.
                let _ = unsafe { munmap(self.at(from).as_ptr(), length) };
            }
        }
        std::mem::forget(self);
        kept
    }

    /// The address at `offset` from the start, at most the end.
    #[inline]
    pub fn at(&self, offset: usize) -> NonNull<c_void> {
        assert!(offset <= self.bytes);
        // SAFETY: it is within the mapping.
        unsafe { self.start.byte_add(offset) }
    }

    /// Faults in all pages, so that no later access faults, or returns the error.
    pub fn populate(&self, access: Access) -> Result<(), Errno> {
        let advice = match access {
            Access::ReadWrite => Advice::LinuxPopulateWrite,
            Access::ReadOnly => Advice::LinuxPopulateRead,
        };
        // SAFETY: it does not change the content of the memory.
        unsafe { madvise(self.start.as_ptr(), self.bytes, advice) }
    }

    /// Locks it, so that it is not swapped out.
    pub fn lock(&self) -> Result<(), Errno> {
        // SAFETY: it does not change the content of the memory.
        unsafe { mlock(self.start.as_ptr(), self.bytes) }
    }

    /// Binds pages that are allocated later to one NUMA node.
    pub fn bind(&self, node: u32) -> Result<(), Errno> {
        const BITS: usize = u64::BITS as usize;
        let mut mask = [0u64; 1024 / BITS];
        let word = mask.get_mut(node as usize / BITS).ok_or(Errno::INVAL)?;
        *word = 1 << (node as usize % BITS);
        // SAFETY: the mask has the given length, and the kernel only reads it.
        let returned = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.start.as_ptr(),
                self.bytes,
                libc::MPOL_BIND,
                mask.as_ptr(),
                mask.len() * BITS,
                0,
            )
        };
        match returned {
            0 => Ok(()),
            _ => {
                Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL))
            }
        }
    }
}

impl Access {
    fn protection(self) -> ProtFlags {
        match self {
            Self::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
            Self::ReadOnly => ProtFlags::READ,
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: every user of an address in it borrows this or keeps it alive.
        let _ = unsafe { munmap(self.start.as_ptr(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no files in memory")]
    fn the_same_bytes_are_there_twice() {
        let file = memfd_create("region", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, 8192).unwrap();
        let region = Region::map_mirrored(&file, 4096, 4096, 1 << 20, Access::ReadWrite)
            .expect("no mapping");
        assert!(region.at(0).as_ptr().cast::<u8>().align_offset(1 << 20) == 0);
        let byte = |at| region.at(at).cast::<u8>();
        // SAFETY: both are within the mapping, which has no other user.
        unsafe {
            byte(5).write(7);
            assert_eq!(byte(4096 + 5).read(), 7);
        }
    }
}
