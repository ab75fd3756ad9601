// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pipe's ioctls, with arbitrary arguments.

use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;

use super::memory::PAGE;

pub use sluice_abi::{
    PIPE_INFO as INFO, PIPE_INFO_SIZE_VER0 as INFO_SIZE_VER0, PIPE_SET_CAPACITY as SET_CAPACITY,
    PIPE_SET_SPIN as SET_SPIN, PipeInfo as Info, Setting,
};

/// Any command with any argument.
pub fn raw<T>(fd: &impl AsFd, command: u64, argument: *mut T) -> nix::Result<()> {
    raw_with_result(fd, command, argument).map(drop)
}

/// As `raw`, for a command that returns a number.
pub fn raw_with_result<T>(
    fd: &impl AsFd,
    command: u64,
    argument: *mut T,
) -> nix::Result<libc::c_int> {
    // SAFETY: the kernel checks the pointer and touches no more than the size that stands in what it points to, which
    // callers of this function choose to fit or to fault.
    Errno::result(unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), command, argument) })
}

/// Sets a number and returns the effective value.
pub fn set(fd: &impl AsFd, command: u64, value: u64) -> nix::Result<u64> {
    let mut setting = Setting::new(value);
    raw(fd, command, &mut setting)?;
    Ok(setting.value)
}

/// The structure that a command fills in.
pub fn get<T: Default>(fd: &impl AsFd, command: u64) -> nix::Result<T> {
    let mut result = T::default();
    raw(fd, command, &mut result)?;
    Ok(result)
}

pub fn info(fd: &impl AsFd) -> nix::Result<Info> {
    get(fd, INFO)
}

/// FIONREAD.
pub fn bytes_waiting(fd: &impl AsFd) -> nix::Result<usize> {
    let mut count: libc::c_int = 0;
    raw(fd, libc::FIONREAD, &mut count)?;
    Ok(count as usize)
}

/// The error of a structure whose size is invalid: below its first size, or above a page.
pub fn size_error(size: u32) -> Errno {
    if size > PAGE as u32 {
        Errno::E2BIG
    } else {
        Errno::EINVAL
    }
}
