// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buses: the frame of a message, the calls of an endpoint and their structures.

use libc::Ioctl;

use super::{Setting, TYPE, size_of};

pub const CAPACITY_MIN: u64 = 0x1000;
pub const CAPACITY_MAX: u64 = 0x1000_0000;
/// The module's, if `Open::capacity` is 0.
pub const DEFAULT_CAPACITY: u64 = 1 << 20;
pub const MESSAGE_MAX: u64 = 0x10_0000;

/// Values of `mode`.
pub const BROADCAST: u32 = 0;
pub const MULTICAST: u32 = 1;
pub const UNICAST: u32 = 2;

/// Bits of `policies`; one of them is a `policy`.
pub const DROP: u32 = 0x01;
pub const BLOCK: u32 = 0x02;
pub const EVICT: u32 = 0x04;

/// Bits of `flags`.
pub const MAPPABLE: u32 = 0x01;
pub const MAPPED: u32 = 0x02;
pub const MONITOR: u32 = 0x04;
pub const ADDRESSED: u32 = 0x08;

/// Values of `format`.
pub const RAW: u32 = 0;
pub const FRAMED: u32 = 1;
pub const BATCHED: u32 = 2;

/// Offset of the data in a mapping.
pub const MMAP_DATA: u64 = 0x20_0000;

pub const RECEIVE_MAX: usize = 32;
pub const SUBSCRIBERS_MAX: usize = 64;

pub const PARAMS_SIZE_VER0: u32 = 32;
pub const FRAME_SIZE_VER0: u32 = 64;
pub const INFO_SIZE_VER0: u32 = 120;
pub const ENTRY_SIZE_VER0: u32 = 32;
pub const RECEIVE_SIZE_VER0: u32 = 32;
pub const SUBSCRIBER_INFO_SIZE_VER0: u32 = 40;
pub const SUBSCRIBERS_SIZE_VER0: u32 = 32;

pub const SET_FORMAT: Ioctl = libc::_IOWR::<Setting>(TYPE, 0x40);
pub const SET_SPIN: Ioctl = libc::_IOWR::<Setting>(TYPE, 0x41);
pub const INFO: Ioctl = libc::_IOWR::<Info>(TYPE, 0x42);
pub const RECEIVE: Ioctl = libc::_IOWR::<Receive>(TYPE, 0x43);
pub const SUBSCRIBERS: Ioctl = libc::_IOWR::<Subscribers>(TYPE, 0x44);
pub const TURN: Ioctl = libc::_IOWR::<Setting>(TYPE, 0x45);

structure! {
    pub struct Params = "sluice_bus_params" {
        pub size: u32,
        pub flags: u32,
        pub mode: u32,
        pub policies: u32,
        pub policy: u32,
        pub format: u32,
        pub limit: u64,
    }
}

structure! {
    /// Precedes the bytes of a message in the formats `FRAMED` and `BATCHED`.
    pub struct Frame = "sluice_bus_frame" {
        pub size: u32,
        pub length: u32,
        pub target: u64,
        pub sender: u64,
        pub sequence: u64,
        pub lost: u64,
        pub pid: u32,
        pub uid: u32,
        pub gid: u32,
        pub reserved: u32,
        pub tag: u64,
    }
}

impl Frame {
    /// Of a message of `length` bytes to the subscriber with the id `target`; 0: to none in particular.
    pub const fn new(length: u32, target: u64) -> Self {
        Self {
            length,
            target,
            ..Self::EMPTY
        }
    }
}

structure! {
    pub struct Info = "sluice_bus_info" {
        pub size: u32,
        pub flags: u32,
        pub mode: u32,
        pub policies: u32,
        pub capacity: u64,
        pub message_max: u64,
        pub subscribers: u32,
        pub senders: u32,
        pub sent: u64,
        pub unsubscribed: u64,
        pub lost: u64,
        pub evicted: u64,
        pub lag: u64,
        pub id: u64,
        pub policy: u32,
        pub format: u32,
        pub own_lost: u64,
        pub own_lag: u64,
        pub spin_limit_ns: u64,
    }
}

structure! {
    #[derive(Default)]
    pub struct Entry = "sluice_bus_entry" {
        pub offset: u64,
        pub sequence: u64,
        pub sender: u64,
        pub length: u32,
        pub reserved: u32,
    }
}

structure! {
    pub struct Receive = "sluice_bus_receive" {
        pub size: u32,
        pub count: u32,
        pub entries: u64,
        pub released: u64,
        pub entry_size: u32,
        pub reserved: u32,
    }
}

impl Receive {
    /// Releases all messages before the sequence `released`, and receives up to `count`. Stores only the address of `entries`.
    pub fn new(entries: *mut Entry, count: usize, released: u64) -> Self {
        Self {
            size: size_of::<Self>(),
            count: u32::try_from(count).unwrap_or(u32::MAX),
            entries: entries as u64,
            released,
            entry_size: size_of::<Entry>(),
            reserved: 0,
        }
    }
}

structure! {
    #[derive(Default)]
    pub struct SubscriberInfo = "sluice_bus_subscriber_info" {
        pub id: u64,
        pub policy: u32,
        pub flags: u32,
        pub lag: u64,
        pub lost: u64,
        pub pid: u32,
        pub uid: u32,
    }
}

structure! {
    pub struct Subscribers = "sluice_bus_subscribers" {
        pub size: u32,
        pub count: u32,
        pub after: u64,
        pub entries: u64,
        pub entry_size: u32,
        pub reserved: u32,
    }
}

impl Subscribers {
    /// Up to `count` subscribers after the one with the id `after`. Stores only the address of `entries`.
    pub fn new(after: u64, entries: *mut SubscriberInfo, count: usize) -> Self {
        Self {
            size: size_of::<Self>(),
            count: u32::try_from(count).unwrap_or(u32::MAX),
            after,
            entries: entries as u64,
            entry_size: size_of::<SubscriberInfo>(),
            reserved: 0,
        }
    }
}

sized!(Params, Frame, Info);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_converted_as_it_lies_in_memory() {
        let frame = Frame {
            sender: 2 << 40,
            sequence: 3 << 50,
            lost: 4,
            pid: 5,
            uid: 6,
            gid: 7,
            reserved: 8,
            tag: 9,
            ..Frame::new(10, 1 << 33)
        };
        // SAFETY: it has no padding, and any bytes are a valid byte array.
        let memory: [u8; Frame::SIZE] = unsafe { std::mem::transmute(frame) };
        assert_eq!(frame.to_bytes(), memory);
        assert_eq!(Frame::from_bytes(&memory), frame);
    }
}
