// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file of one side: made, sealed, and judged when it comes from the other side.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs, ftruncate,
    memfd_create,
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

/// Who may map it for writing once it is sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writers {
    Nobody,
    Everybody,
}

impl Writers {
    /// Against what would let the other end pull the memory away from under us, and against writes from its side.
    fn seals(self) -> SealFlags {
        let size = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        match self {
            Self::Nobody => size | SealFlags::FUTURE_WRITE,
            Self::Everybody => size,
        }
    }
}

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

/// From now on nobody can change its size, and only these can map it for writing. Mappings that are there stay as they are.
pub(super) fn seal(file: &OwnedFd, writers: Writers) -> Result<()> {
    fcntl_add_seals(file, writers.seals()).map_err(Error::system("sealing the ring's memory"))
}

/// Whether the other side's file can be trusted to stay so many bytes.
pub(super) fn judge(file: &impl AsFd, bytes: u64, writers: Writers) -> Result<()> {
    let seals = fcntl_get_seals(file).map_err(|_| Error::Unsafe("it is no memfd".into()))?;
    let lacking = writers.seals().difference(seals);
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

/// Whether the other side's data begins where its file's pages make it. What is not of huge pages needs not be there as a whole, and must
/// not be asked for: it could be all of this machine's memory.
pub(super) fn judge_pages(file: &impl AsFd, data: u64) -> Result<()> {
    let system = fstatfs(file).map_err(Error::system("looking at the other end's memory"))?;
    let size = match system.f_type {
        libc::HUGETLBFS_MAGIC => system.f_bsize as u64,
        _ => Pages::Normal.size(),
    };
    match data == size {
        true => Ok(()),
        false => Err(Error::Unsafe(format!(
            "its data begins at {data}, where its pages have {size} bytes"
        ))),
    }
}
