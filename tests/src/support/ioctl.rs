// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pipe's ioctls, as include/uapi/linux/sluice.h describes them.

use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;

const TYPE: u64 = 0xC7;
const READ_AND_WRITE: u64 = 3;

/// The number of a command that reads and writes an argument of `size` bytes.
const fn command(number: u64, size: usize) -> u64 {
    READ_AND_WRITE << 30 | (size as u64) << 16 | TYPE << 8 | number
}

const SETTING_SIZE: usize = size_of::<Setting>();
pub const SET_CAPACITY: u64 = command(0, SETTING_SIZE);
pub const SET_SPIN: u64 = command(1, SETTING_SIZE);
pub const INFO: u64 = command(2, size_of::<Info>());

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Setting {
    pub size: u32,
    pub flags: u32,
    pub value: u64,
}

impl Setting {
    pub fn new(value: u64) -> Self {
        Setting {
            size: SETTING_SIZE as u32,
            flags: 0,
            value,
        }
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Info {
    pub size: u32,
    pub readers: u32,
    pub writers: u32,
    pub reserved: u32,
    pub capacity: u64,
    pub bytes: u64,
    pub spin_limit_ns: u64,
    pub pages_allocated: u64,
    pub pages_moved_in: u64,
    pub pages_moved_out: u64,
}

/// Any command with any argument.
pub fn raw<T>(fd: &impl AsFd, command: u64, argument: *mut T) -> nix::Result<()> {
    // SAFETY: the kernel checks the pointer and touches no more than the size that stands in what it points to, which
    // callers of this function choose to fit or to fault.
    Errno::result(unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), command, argument) }).map(drop)
}

/// Sets a number and returns what is in force.
pub fn set(fd: &impl AsFd, command: u64, value: u64) -> nix::Result<u64> {
    let mut setting = Setting::new(value);
    raw(fd, command, &mut setting)?;
    Ok(setting.value)
}

pub fn info(fd: &impl AsFd) -> nix::Result<Info> {
    let mut info = Info {
        size: size_of::<Info>() as u32,
        ..Info::default()
    };
    raw(fd, INFO, &mut info)?;
    Ok(info)
}
