// SPDX-License-Identifier: MIT OR Apache-2.0
//! The structures and numbers of include/uapi/linux/sluice.h in Rust, without calls. A test compiles that header and
//! compares. docs/abi/ defines each field. `new` and `default` initialise a structure for the common case.

use libc::Ioctl;

#[macro_use]
mod structure;

pub mod bus;
pub mod feed;
#[cfg(test)]
mod header;
pub mod keeper;
pub mod map;
pub mod netlink;
#[cfg(test)]
mod pages;
pub mod ring;
#[cfg(test)]
mod spec;

const TYPE: u32 = 0xC7;

pub const NAME_SIZE: usize = 64;
/// The module's capacity of a pipe in pages, if `Open::capacity` is 0.
pub const PIPE_DEFAULT_PAGES: u64 = 16;
pub const KIND_PIPE: u32 = 1;
pub const KIND_RING: u32 = 2;
pub const KIND_FEED: u32 = 3;
pub const KIND_BUS: u32 = 4;
pub const KIND_MAP: u32 = 5;
/// Values of `scope_fd`: the caller's own cgroup, and the root of the hierarchy.
pub const SCOPE_SELF: i32 = -1;
pub const SCOPE_ROOT: i32 = -2;

pub const OPEN_READ: u32 = 0x01;
pub const OPEN_WRITE: u32 = 0x02;
pub const OPEN_CREATE: u32 = 0x04;
pub const OPEN_EXCL: u32 = 0x08;
pub const OPEN_PERSIST: u32 = 0x10;
pub const OPEN_NONBLOCK: u32 = 0x20;
pub const OPEN_ANY_OWNER: u32 = 0x40;
/// All flags of this version.
pub const OPEN_FLAGS: u32 = OPEN_READ
    | OPEN_WRITE
    | OPEN_CREATE
    | OPEN_EXCL
    | OPEN_PERSIST
    | OPEN_NONBLOCK
    | OPEN_ANY_OWNER;

pub const CHANNEL_PERSISTENT: u32 = 0x01;
pub const LIST_MAX: usize = 64;
pub const ABI: u32 = 1;

pub const SETTING_SIZE_VER0: u32 = 16;
pub const PIPE_INFO_SIZE_VER0: u32 = 64;
pub const OPEN_SIZE_VER0: u32 = 104;
pub const UNLINK_SIZE_VER0: u32 = 80;
pub const CHANNEL_INFO_SIZE_VER0: u32 = 112;
pub const INFO_SIZE_VER0: u32 = 96;
pub const LIST_SIZE_VER0: u32 = 96;
pub const FEATURES_SIZE_VER0: u32 = 24;
pub const USAGE_SIZE_VER0: u32 = 80;
pub const RING_PARAMS_SIZE_VER0: u32 = 16;
pub const RING_INFO_SIZE_VER0: u32 = 48;
pub const RING_WAIT_SIZE_VER0: u32 = 24;

pub const PIPE_SET_CAPACITY: Ioctl = libc::_IOWR::<Setting>(TYPE, 0x00);
pub const PIPE_SET_SPIN: Ioctl = libc::_IOWR::<Setting>(TYPE, 0x01);
pub const PIPE_INFO: Ioctl = libc::_IOWR::<PipeInfo>(TYPE, 0x02);
pub const CTL_OPEN: Ioctl = libc::_IOW::<Open>(TYPE, 0x10);
pub const CTL_UNLINK: Ioctl = libc::_IOW::<Unlink>(TYPE, 0x11);
pub const CTL_INFO: Ioctl = libc::_IOW::<Info>(TYPE, 0x12);
pub const CTL_LIST: Ioctl = libc::_IOWR::<List>(TYPE, 0x13);
pub const CTL_FEATURES: Ioctl = libc::_IOWR::<Features>(TYPE, 0x14);
pub const CTL_DESTROY: Ioctl = libc::_IOW::<Unlink>(TYPE, 0x15);
pub const ENDPOINT_INFO: Ioctl = libc::_IOWR::<ChannelInfo>(TYPE, 0x17);
pub const CTL_USAGE: Ioctl = libc::_IOWR::<Usage>(TYPE, 0x18);
pub const CTL_KEEP: Ioctl = libc::_IOW::<keeper::Keep>(TYPE, 0x16);
pub const RING_WAKE: Ioctl = libc::_IO(TYPE, 0x20);
pub const RING_WAIT: Ioctl = libc::_IOW::<RingWait>(TYPE, 0x21);
pub const RING_DETACH: Ioctl = libc::_IO(TYPE, 0x22);
pub const RING_INFO: Ioctl = libc::_IOWR::<RingInfo>(TYPE, 0x23);

structure! {
    pub struct Setting = "sluice_setting" {
        pub size: u32,
        pub flags: u32,
        pub value: u64,
    }
}

impl Setting {
    pub const fn new(value: u64) -> Self {
        Self {
            size: size_of::<Self>(),
            flags: 0,
            value,
        }
    }
}

structure! {
    pub struct PipeInfo = "sluice_pipe_info" {
        pub size: u32,
        pub readers: u32,
        pub writers: u32,
        pub reserved: u32,
        pub capacity: u64,
        pub bytes: u64,
        pub spin_limit_ns: u64,
        pub pages_allocated: u64,
        pub pages_spliced_in: u64,
        pub pages_spliced_out: u64,
    }
}

structure! {
    pub struct Open = "sluice_open" {
        pub size: u32,
        pub kind: u32,
        pub flags: u32,
        pub scope_fd: i32,
        pub name: [u8; NAME_SIZE],
        pub mode: u32,
        pub reserved: u32,
        pub capacity: u64,
        pub params: u64,
    }
}

impl Open {
    /// A pipe in the caller's own cgroup, accessible by its owner only, with the default capacity.
    pub fn new(name: impl AsRef<[u8]>, flags: u32) -> Self {
        Self {
            kind: KIND_PIPE,
            flags,
            scope_fd: SCOPE_SELF,
            name: padded(name),
            mode: 0o600,
            ..Self::EMPTY
        }
    }
}

structure! {
    pub struct Unlink = "sluice_unlink" {
        pub size: u32,
        pub kind: u32,
        pub flags: u32,
        pub scope_fd: i32,
        pub name: [u8; NAME_SIZE],
    }
}

impl Unlink {
    pub fn new(scope_fd: i32, name: impl AsRef<[u8]>) -> Self {
        Self {
            size: size_of::<Self>(),
            kind: KIND_PIPE,
            flags: 0,
            scope_fd,
            name: padded(name),
        }
    }
}

structure! {
    pub struct ChannelInfo = "sluice_channel_info" {
        pub size: u32,
        pub kind: u32,
        pub flags: u32,
        pub mode: u32,
        pub name: [u8; NAME_SIZE],
        pub uid: u32,
        pub gid: u32,
        pub readers: u32,
        pub writers: u32,
        pub capacity: u64,
        pub bytes: u64,
        pub messages: u64,
        pub total_bytes: u64,
        pub lost: u64,
        pub lag: u64,
        pub waiting: u32,
        pub reserved: u32,
    }
}

impl ChannelInfo {
    /// The name without the padding.
    pub fn name(&self) -> &[u8] {
        unpadded(&self.name)
    }
}

structure! {
    pub struct Info = "sluice_info" {
        pub size: u32,
        pub kind: u32,
        pub flags: u32,
        pub scope_fd: i32,
        pub name: [u8; NAME_SIZE],
        pub info: u64,
        pub state: u64,
    }
}

impl Info {
    /// For a pipe. Stores only the address of `info`.
    pub fn new(scope_fd: i32, name: impl AsRef<[u8]>, info: *mut ChannelInfo) -> Self {
        Self {
            size: size_of::<Self>(),
            kind: KIND_PIPE,
            flags: 0,
            scope_fd,
            name: padded(name),
            info: info as u64,
            state: 0,
        }
    }
}

structure! {
    pub struct List = "sluice_list" {
        pub size: u32,
        pub kind: u32,
        pub flags: u32,
        pub scope_fd: i32,
        pub name: [u8; NAME_SIZE],
        pub entries: u64,
        pub count: u32,
        pub entry_size: u32,
    }
}

impl List {
    /// From the beginning, with `count` entries. Stores only the address of `entries`.
    pub fn new(scope_fd: i32, entries: *mut ChannelInfo, count: usize) -> Self {
        Self {
            size: size_of::<Self>(),
            kind: 0,
            flags: 0,
            scope_fd,
            name: [0; NAME_SIZE],
            entries: entries as u64,
            count: u32::try_from(count).unwrap_or(u32::MAX),
            entry_size: size_of::<ChannelInfo>(),
        }
    }
}

structure! {
    pub struct Usage = "sluice_usage" {
        pub size: u32,
        pub flags: u32,
        pub scope_fd: i32,
        pub reserved: u32,
        pub scope_channels: u64,
        pub scope_channels_max: u64,
        pub scope_bytes: u64,
        pub scope_bytes_max: u64,
        pub user_channels: u64,
        pub user_channels_max: u64,
        pub user_bytes: u64,
        pub user_bytes_max: u64,
    }
}

impl Usage {
    pub const fn new(scope_fd: i32) -> Self {
        Self {
            scope_fd,
            ..Self::EMPTY
        }
    }
}

structure! {
    pub struct Features = "sluice_features" {
        pub size: u32,
        pub abi: u32,
        pub kinds: u64,
        pub open_flags: u64,
    }
}

structure! {
    pub struct RingParams = "sluice_ring_params" {
        pub size: u32,
        pub flags: u32,
        pub node: i32,
        pub reserved: u32,
    }
}

impl RingParams {
    pub const fn new(node: i32) -> Self {
        Self {
            size: size_of::<Self>(),
            flags: 0,
            node,
            reserved: 0,
        }
    }
}

structure! {
    pub struct RingInfo = "sluice_ring_info" {
        pub size: u32,
        pub role: u32,
        pub producer: u32,
        pub consumer: u32,
        pub node: i32,
        pub reserved: u32,
        pub capacity: u64,
        pub published: u64,
        pub released: u64,
    }
}

structure! {
    pub struct RingWait = "sluice_ring_wait" {
        pub size: u32,
        pub flags: u32,
        pub seq: u32,
        pub reserved: u32,
        pub timeout_ns: u64,
    }
}

impl RingWait {
    pub const fn new(seq: u32, timeout_ns: u64) -> Self {
        Self {
            size: size_of::<Self>(),
            flags: 0,
            seq,
            reserved: 0,
            timeout_ns,
        }
    }
}

sized!(PipeInfo, Open, ChannelInfo, Usage, Features, RingInfo);

/// A name, padded with zeros, and truncated to the array.
pub fn padded(name: impl AsRef<[u8]>) -> [u8; NAME_SIZE] {
    let mut padded = [0; NAME_SIZE];
    for (to, from) in padded.iter_mut().zip(name.as_ref()) {
        *to = *from;
    }
    padded
}

fn unpadded(name: &[u8; NAME_SIZE]) -> &[u8] {
    let end = name.iter().position(|byte| *byte == 0);
    &name[..end.unwrap_or(NAME_SIZE)]
}

/// The value of the first word of a structure.
const fn size_of<T>() -> u32 {
    std::mem::size_of::<T>() as u32
}
