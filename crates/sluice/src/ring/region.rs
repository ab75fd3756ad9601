// SPDX-License-Identifier: MIT OR Apache-2.0
//! A piece of a memfd in this process's memory.

use std::ffi::c_void;
use std::os::fd::OwnedFd;
use std::ptr::{self, NonNull};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mlock, mmap, mmap_anonymous, munmap};

/// Who may write to it through this mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    ReadWrite,
    ReadOnly,
}

/// Unmapped when dropped.
#[derive(Debug)]
pub(super) struct Region {
    start: NonNull<c_void>,
    bytes: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread; what is in it is for its user to order.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// So many bytes from an offset on, both multiples of the file's page size.
    pub fn map(file: &OwnedFd, offset: u64, bytes: usize, access: Access) -> Result<Self, Errno> {
        // SAFETY: the kernel chooses a place where nothing is.
        let start = unsafe {
            mmap(
                ptr::null_mut(),
                bytes,
                access.protection(),
                MapFlags::SHARED,
                file,
                offset,
            )?
        };
        Self::taken(start, bytes).ok_or(Errno::NOMEM)
    }

    /// The same bytes twice in a row, at an address that is a multiple of `align`.
    pub fn map_mirrored(
        file: &OwnedFd,
        offset: u64,
        bytes: usize,
        align: usize,
        access: Access,
    ) -> Result<Self, Errno> {
        let place = Self::reserve(2 * bytes, align)?;
        for half in [0, bytes] {
            // SAFETY: both halves lie within what was reserved, where nothing else is.
            unsafe {
                mmap(
                    place.at(half).as_ptr(),
                    bytes,
                    access.protection(),
                    MapFlags::SHARED | MapFlags::FIXED,
                    file,
                    offset,
                )?;
            }
        }
        Ok(place)
    }

    /// Addresses that nothing is at, and nothing else will be.
    fn reserve(bytes: usize, align: usize) -> Result<Self, Errno> {
        let all = bytes.checked_add(align).ok_or(Errno::NOMEM)?;
        // SAFETY: the kernel chooses a place where nothing is.
        let start =
            unsafe { mmap_anonymous(ptr::null_mut(), all, ProtFlags::empty(), MapFlags::PRIVATE)? };
        let before = start.cast::<u8>().align_offset(align);
        let region = Self::taken(start, all).ok_or(Errno::NOMEM)?;
        Ok(region.keep(before, bytes))
    }

    fn taken(start: *mut c_void, bytes: usize) -> Option<Self> {
        NonNull::new(start).map(|start| Self { start, bytes })
    }

    /// Gives back what is before and behind.
    fn keep(self, before: usize, bytes: usize) -> Self {
        let kept = Self {
            start: self.at(before),
            bytes,
        };
        let behind = before + bytes;
        for (from, length) in [(0, before), (behind, self.bytes - behind)] {
            if length > 0 {
                // SAFETY: nobody was told of these addresses. It fails only where a page would have to be cut.
                let _ = unsafe { munmap(self.at(from).as_ptr(), length) };
            }
        }
        std::mem::forget(self);
        kept
    }

    /// The address so many bytes from the start, at most the end.
    pub fn at(&self, offset: usize) -> NonNull<c_void> {
        assert!(offset <= self.bytes);
        // SAFETY: it stays within the mapping.
        unsafe { self.start.byte_add(offset) }
    }

    /// All of it is there from now on, or an error tells why not: nothing faults later.
    pub fn populate(&self, access: Access) -> Result<(), Errno> {
        let advice = match access {
            Access::ReadWrite => Advice::LinuxPopulateWrite,
            Access::ReadOnly => Advice::LinuxPopulateRead,
        };
        // SAFETY: it changes nothing in the memory.
        unsafe { madvise(self.start.as_ptr(), self.bytes, advice) }
    }

    /// Keeps it from being swapped out.
    pub fn lock(&self) -> Result<(), Errno> {
        // SAFETY: it changes nothing in the memory.
        unsafe { mlock(self.start.as_ptr(), self.bytes) }
    }

    /// Binds pages that are not there yet to one node of the machine's memory.
    pub fn bind(&self, node: u32) -> Result<(), Errno> {
        const BITS: usize = u64::BITS as usize;
        let mut mask = [0u64; 1024 / BITS];
        let word = mask.get_mut(node as usize / BITS).ok_or(Errno::INVAL)?;
        *word = 1 << (node as usize % BITS);
        // SAFETY: the mask is as long as told, and the kernel only reads it.
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
        // SAFETY: whoever has an address in it has it from one that borrows this, or keeps it.
        let _ = unsafe { munmap(self.start.as_ptr(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::super::memfd::{self, Pages};
    use super::*;

    #[test]
    fn the_same_bytes_are_there_twice() {
        let file = memfd::create(8192, Pages::Normal).expect("no memory");
        let region = Region::map_mirrored(&file, 4096, 4096, 1 << 20, Access::ReadWrite)
            .expect("no mapping");
        assert!(region.at(0).as_ptr().cast::<u8>().align_offset(1 << 20) == 0);
        let byte = |at| region.at(at).cast::<u8>();
        // SAFETY: both are within the mapping, and nobody else has it.
        unsafe {
            byte(5).write(7);
            assert_eq!(byte(4096 + 5).read(), 7);
        }
    }

    #[test]
    fn a_sealed_file_cannot_be_mapped_for_writing_any_more() {
        let file = memfd::create(4096, Pages::Normal).expect("no memory");
        let ours = Region::map(&file, 0, 4096, Access::ReadWrite).expect("no mapping");
        memfd::seal(&file, memfd::SealPolicy::Sealed).expect("no seals");
        assert_eq!(
            Region::map(&file, 0, 4096, Access::ReadWrite).err(),
            Some(Errno::PERM)
        );
        let theirs = Region::map(&file, 0, 4096, Access::ReadOnly).expect("no mapping");
        // SAFETY: within the mappings, and nobody else has them.
        unsafe {
            ours.at(0).cast::<u8>().write(9);
            assert_eq!(theirs.at(0).cast::<u8>().read(), 9);
        }
    }
}
