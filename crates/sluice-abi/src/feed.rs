// SPDX-License-Identifier: MIT OR Apache-2.0
//! Feeds: the header of a packet, the calls of an endpoint and their structures. A mapped feed is a ring (`ring`).

use libc::Ioctl;

use super::{Setting, TYPE, size_of};

/// Bytes of a packet after `Packet`.
pub const PACKET_MAX: u32 = 4096;

/// Value of `Start::cpu` and `Info::cpu`: the caller's processor, or never started.
pub const CPU_ANY: i32 = -1;

/// Values of `Info::consumer`.
pub const CONSUMER_NONE: u32 = 0;
pub const CONSUMER_READS: u32 = 1;
pub const CONSUMER_MAPS: u32 = 2;

pub const START_SIZE_VER0: u32 = 32;
pub const INFO_SIZE_VER0: u32 = 96;

pub const START: Ioctl = libc::_IOW::<Start>(TYPE, 0x30);
pub const STOP: Ioctl = libc::_IO(TYPE, 0x31);
pub const INFO: Ioctl = libc::_IOWR::<Info>(TYPE, 0x32);
pub const SET_SPIN: Ioctl = libc::_IOWR::<Setting>(TYPE, 0x33);
pub const CLAIM: Ioctl = libc::_IOW::<Setting>(TYPE, 0x34);

structure! {
    /// Precedes the bytes of each packet, in a record and in the result of read(2).
    #[derive(Default)]
    pub struct Packet = "sluice_feed_packet" {
        pub sequence: u64,
        pub lost: u64,
        pub time_ns: u64,
        pub cycles: u64,
    }
}

structure! {
    pub struct Start = "sluice_feed_start" {
        pub size: u32,
        pub flags: u32,
        pub interval_ns: u64,
        pub count: u64,
        pub length: u32,
        pub cpu: i32,
    }
}

impl Start {
    /// Packets of `length` bytes, `count` of them (0: no limit), on the caller's processor.
    pub const fn new(interval_ns: u64, count: u64, length: u32) -> Self {
        Self {
            size: size_of::<Self>(),
            flags: 0,
            interval_ns,
            count,
            length,
            cpu: CPU_ANY,
        }
    }
}

structure! {
    pub struct Info = "sluice_feed_info" {
        pub size: u32,
        pub consumer: u32,
        pub capacity: u64,
        pub sequence: u64,
        pub published: u64,
        pub lost: u64,
        pub violations: u64,
        pub spin_limit_ns: u64,
        pub running: u32,
        pub cpu: i32,
        pub interval_ns: u64,
        pub expired: u64,
        pub missed: u64,
        pub elapsed_ns: u64,
    }
}

sized!(Info);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_read_as_it_lies_in_memory() {
        let packet = Packet {
            sequence: 1 << 40,
            lost: 2,
            time_ns: 3,
            cycles: 4 << 50,
        };
        // SAFETY: it has no padding, and any bytes are a valid byte array.
        let memory: [u8; Packet::SIZE] = unsafe { std::mem::transmute(packet) };
        assert_eq!(Packet::from_bytes(&memory), packet);
    }
}
