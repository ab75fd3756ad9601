// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memfd of one side: creation, sealing, and validation of the peer's.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs, ftruncate,
    memfd_create,
};

use crate::ring::error::SetupError;
use crate::shared::region::page_size;

/// The page type of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ring) enum Pages {
    Normal,
    Huge,
}

impl Pages {
    pub fn size(self) -> u64 {
        match self {
            Self::Normal => page_size(),
            Self::Huge => 2 << 20,
        }
    }
}

/// Whether the file is sealed against writing. The size always is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ring) enum SealPolicy {
    Sealed,
    Unsealed,
}

impl SealPolicy {
    /// The seals of the size, and those against writing.
    fn seals(self) -> SealFlags {
        let size = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        match self {
            Self::Sealed => size | SealFlags::FUTURE_WRITE,
            Self::Unsealed => size,
        }
    }
}

/// Creates a file of `bytes` zeros. It is sealed after it is mapped.
pub(in crate::ring) fn create(bytes: u64, pages: Pages) -> Result<OwnedFd, SetupError> {
    let mut flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    if pages == Pages::Huge {
        flags |= MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
    }
    let file = memfd_create("sluice-ring", flags)
        .map_err(SetupError::system("making the ring's memory"))?;
    ftruncate(&file, bytes).map_err(SetupError::system("sizing the ring's memory"))?;
    Ok(file)
}

/// Seals the file. Existing mappings are not affected.
pub(super) fn seal(file: &OwnedFd, policy: SealPolicy) -> Result<(), SetupError> {
    fcntl_add_seals(file, policy.seals()).map_err(SetupError::system("sealing the ring's memory"))
}

/// Checks that the peer's file has `bytes` bytes and the seals of the policy.
pub(super) fn validate(file: &impl AsFd, bytes: u64, policy: SealPolicy) -> Result<(), SetupError> {
    let seals =
        fcntl_get_seals(file).map_err(|_| SetupError::InvalidMemfd("it is not a memfd".into()))?;
    let missing = policy.seals().difference(seals);
    if !missing.is_empty() {
        let names: Vec<_> = missing.iter_names().map(|(name, _)| name).collect();
        return Err(SetupError::InvalidMemfd(format!(
            "it is not sealed against {}",
            names.join(", ")
        )));
    }
    let is = fstat(file)
        .map_err(SetupError::system("checking the peer's memory"))?
        .st_size;
    if u64::try_from(is) != Ok(bytes) {
        return Err(SetupError::InvalidMemfd(format!(
            "its size is {is} bytes instead of {bytes}"
        )));
    }
    Ok(())
}

/// Checks that the offset of the data is the page size of the peer's file. A file without huge pages is not prefaulted here,
/// because it could be as large as the memory of this machine.
pub(super) fn validate_pages(
    file: &impl AsFd,
    data: u64,
    policy: SealPolicy,
) -> Result<(), SetupError> {
    let system = fstatfs(file).map_err(SetupError::system("checking the peer's memory"))?;
    let (size, huge) = match system.f_type {
        libc::HUGETLBFS_MAGIC => (system.f_bsize as u64, true),
        _ => (Pages::Normal.size(), false),
    };
    if data != size {
        return Err(SetupError::InvalidMemfd(format!(
            "its data starts at {data}, its page size is {size} bytes"
        )));
    }
    // Its owner could punch a hole into it, and an access to a missing huge page is a SIGBUS.
    if huge && policy == SealPolicy::Unsealed {
        return Err(SetupError::InvalidMemfd(
            "its huge pages are not sealed against writing".into(),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;
    use crate::shared::region::{Access, Region};

    #[test]
    fn a_sealed_file_cannot_be_mapped_for_writing_any_more() {
        let file = create(4096, Pages::Normal).expect("no memory");
        let ours = Region::map(&file, 0, 4096, Access::ReadWrite).expect("no mapping");
        seal(&file, SealPolicy::Sealed).expect("no seals");
        assert_eq!(
            Region::map(&file, 0, 4096, Access::ReadWrite).err(),
            Some(Errno::PERM)
        );
        let theirs = Region::map(&file, 0, 4096, Access::ReadOnly).expect("no mapping");
        // SAFETY: within the mappings, which have no other user.
        unsafe {
            ours.at(0).cast::<u8>().write(9);
            assert_eq!(theirs.at(0).cast::<u8>().read(), 9);
        }
    }
}
