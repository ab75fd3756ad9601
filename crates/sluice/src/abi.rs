// SPDX-License-Identifier: MIT OR Apache-2.0
//! What include/uapi/linux/sluice.h says, in Rust. A test compiles that header and compares.

use libc::Ioctl;

#[cfg(test)]
mod header;

const TYPE: u32 = 0xC7;

pub const NAME_SIZE: usize = 64;
pub const KIND_PIPE: u32 = 1;
pub const SCOPE_SELF: i32 = -1;

pub const OPEN_READ: u32 = 0x01;
pub const OPEN_WRITE: u32 = 0x02;
pub const OPEN_CREATE: u32 = 0x04;
pub const OPEN_EXCL: u32 = 0x08;
pub const OPEN_PERSIST: u32 = 0x10;
pub const OPEN_NONBLOCK: u32 = 0x20;

pub const CHANNEL_PERSISTENT: u32 = 0x01;
pub const LIST_MAX: usize = 64;
pub const ABI: u32 = 1;

pub const PIPE_SET_CAPACITY: Ioctl = libc::_IOWR::<Setting>(TYPE, 0x00);
pub const PIPE_SET_SPIN: Ioctl = libc::_IOWR::<Setting>(TYPE, 0x01);
pub const PIPE_INFO: Ioctl = libc::_IOWR::<PipeInfo>(TYPE, 0x02);
pub const CTL_OPEN: Ioctl = libc::_IOW::<Open>(TYPE, 0x10);
pub const CTL_UNLINK: Ioctl = libc::_IOW::<Name>(TYPE, 0x11);
pub const CTL_INFO: Ioctl = libc::_IOWR::<Info>(TYPE, 0x12);
pub const CTL_LIST: Ioctl = libc::_IOWR::<List>(TYPE, 0x13);
pub const CTL_FEATURES: Ioctl = libc::_IOWR::<Features>(TYPE, 0x14);

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    pub size: u32,
    pub flags: u32,
    pub value: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct PipeInfo {
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

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Open {
    pub size: u32,
    pub kind: u32,
    pub flags: u32,
    pub scope_fd: i32,
    pub name: [u8; NAME_SIZE],
    pub mode: u32,
    pub reserved: u32,
    pub capacity: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Name {
    pub size: u32,
    pub kind: u32,
    pub flags: u32,
    pub scope_fd: i32,
    pub name: [u8; NAME_SIZE],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ChannelInfo {
    pub kind: u32,
    pub flags: u32,
    pub name: [u8; NAME_SIZE],
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub readers: u32,
    pub writers: u32,
    pub reserved: u32,
    pub capacity: u64,
    pub bytes: u64,
}

impl ChannelInfo {
    pub const EMPTY: Self = Self {
        kind: 0,
        flags: 0,
        name: [0; NAME_SIZE],
        mode: 0,
        uid: 0,
        gid: 0,
        readers: 0,
        writers: 0,
        reserved: 0,
        capacity: 0,
        bytes: 0,
    };
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Info {
    pub size: u32,
    pub kind: u32,
    pub flags: u32,
    pub scope_fd: i32,
    pub name: [u8; NAME_SIZE],
    pub info: ChannelInfo,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct List {
    pub size: u32,
    pub kind: u32,
    pub flags: u32,
    pub scope_fd: i32,
    pub name: [u8; NAME_SIZE],
    pub entries: u64,
    pub count: u32,
    pub entry_size: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Features {
    pub size: u32,
    pub abi: u32,
    pub kinds: u64,
    pub open_flags: u64,
}

/// What the first word of a structure must say.
pub const fn size_of<T>() -> u32 {
    std::mem::size_of::<T>() as u32
}
