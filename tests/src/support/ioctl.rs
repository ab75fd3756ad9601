// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pipe's ioctls, as include/uapi/linux/sluice.h describes them.

use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;

const TYPE: u64 = 0xC7;

/// Which way the argument of a command goes.
#[derive(Clone, Copy)]
pub enum Direction {
    In = 1,
    InAndOut = 3,
}

/// The number of a command with an argument of `size` bytes.
pub const fn command(direction: Direction, number: u64, size: usize) -> u64 {
    (direction as u64) << 30 | (size as u64) << 16 | TYPE << 8 | number
}

const SETTING_SIZE: usize = size_of::<Setting>();
pub const SET_CAPACITY: u64 = command(Direction::InAndOut, 0, SETTING_SIZE);
pub const SET_SPIN: u64 = command(Direction::InAndOut, 1, SETTING_SIZE);
pub const INFO: u64 = command(Direction::InAndOut, 2, size_of::<Info>());

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
