// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ioctls of the keeper.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use sluice_abi::keeper;

/// Begins to restore a durable map: that of a stream, or of a scope if it is 0. Returns the stream.
pub(crate) fn create(
    fd: BorrowedFd<'_>,
    stream: u64,
    scope_fd: i32,
    map: &keeper::Map,
    sequence: u64,
    limit: u64,
) -> io::Result<u64> {
    let mut create = keeper::Create::new(stream, scope_fd, map, sequence, limit);
    // SAFETY: the address is that of the map, which the kernel only reads.
    unsafe { call(fd, keeper::CREATE, &mut create) }?;
    Ok(create.stream)
}

/// Restores entries of a durable map. Returns the number of those that were restored.
///
/// # Safety
/// Every address in the entries is valid for its length. The kernel only reads them.
pub(crate) unsafe fn restore(
    fd: BorrowedFd<'_>,
    stream: u64,
    entries: &[keeper::Entry],
) -> io::Result<usize> {
    let mut restore = keeper::Restore::new(stream, entries);
    // SAFETY: the address is that of `count` entries, which the kernel only reads; those in them are valid, as the caller guarantees.
    unsafe { call(fd, keeper::RESTORE, &mut restore) }?;
    Ok((restore.count as usize).min(entries.len()))
}

/// Calls ioctl(2), and repeats it after a signal.
///
/// # Safety
/// The command takes a structure of this type, and every address in it is valid for the command.
pub(crate) unsafe fn call<T>(
    fd: BorrowedFd<'_>,
    command: libc::Ioctl,
    argument: &mut T,
) -> io::Result<i32> {
    loop {
        // SAFETY: as the caller guarantees.
        let returned =
            unsafe { libc::ioctl(fd.as_raw_fd(), command, std::ptr::from_mut(argument)) };
        if returned >= 0 {
            return Ok(returned);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}
