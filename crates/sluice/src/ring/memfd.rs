// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file of one side: made, sealed, and judged when it comes from the other side.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};

use super::error::{Error, Result};

/// Of what the memory consists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pages {
    Normal,
    Huge,
}

impl Pages {
    pub fn size(self) -> u64 {
        match self {
            // SAFETY: it is a plain question. rustix looks for the answer where valgrind has taken the memory away.
            Self::Normal => unsafe { libc::sysconf(libc::_SC_PAGESIZE) as u64 },
            Self::Huge => 2 << 20,
        }
    }
}

/// Against what would let the other end pull the memory away from under us, and against writes from its side.
const SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::FUTURE_WRITE)
    .union(SealFlags::SEAL);

/// A new one of so many bytes, all zero. It is sealed once it is mapped.
pub(super) fn create(bytes: u64, pages: Pages) -> Result<OwnedFd> {
    let mut flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    if pages == Pages::Huge {
        flags |= MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
    }
    let file =
        memfd_create("sluice-ring", flags).map_err(Error::system("making the ring's memory"))?;
    ftruncate(&file, bytes).map_err(Error::system("sizing the ring's memory"))?;
    Ok(file)
}

/// From now on nobody can map it for writing, nor change its size. Mappings that are there stay as they are.
pub(super) fn seal(file: &OwnedFd) -> Result<()> {
    fcntl_add_seals(file, SEALS).map_err(Error::system("sealing the ring's memory"))
}

/// Whether the other side's file can be trusted to stay so many bytes.
pub(super) fn judge(file: &impl AsFd, bytes: u64) -> Result<()> {
    let seals = fcntl_get_seals(file).map_err(|_| Error::Unsafe("it is no memfd".into()))?;
    let lacking = SEALS.difference(seals);
    if !lacking.is_empty() {
        return Err(Error::Unsafe(format!("it lacks the seals {lacking:?}")));
    }
    let is = fstat(file)
        .map_err(Error::system("looking at the other end's memory"))?
        .st_size;
    if u64::try_from(is) != Ok(bytes) {
        return Err(Error::Unsafe(format!(
            "it has {is} bytes, where {bytes} belong"
        )));
    }
    Ok(())
}
