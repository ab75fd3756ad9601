// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rings: the structures of the shared memory, the handshake messages over memfd, and the numbers of the kind.

pub const VERSION: u32 = 1;

pub const CAPACITY_MIN: u64 = 1 << 12;
pub const CAPACITY_MAX: u64 = 1 << 28;
/// The module's, if `Open::capacity` is 0, and the library's.
pub const DEFAULT_CAPACITY: u64 = 4 << 20;

pub const RECORD_READY: u32 = 1;

pub const WAKE_FUTEX: u32 = 0x01;
pub const WAKE_FD: u32 = 0x02;
pub const NEED_FENCE: u32 = 0x04;
pub const WAIT_SEQ_SHIFT: u32 = 3;

/// Values of `Ctrl::closed`.
pub const CLOSED: u32 = 1;
pub const DIED: u32 = 2;
pub const DESTROYED: u32 = 3;
/// A feed: the consumer stored an invalid position.
pub const REJECTED: u32 = 4;

pub const PRODUCER: u32 = 1;
pub const CONSUMER: u32 = 2;

pub const F_MEMBARRIER: u32 = 0x01;
pub const F_UNSEALED: u32 = 0x02;

pub const MAGIC: u32 = 0x474e_5253;

/// Offsets for mmap(2) of an endpoint.
pub const MMAP_PRODUCER: u64 = 0x00_0000;
pub const MMAP_CONSUMER: u64 = 0x10_0000;
pub const MMAP_DATA: u64 = 0x20_0000;

/// Values of `RingInfo::producer` and `RingInfo::consumer`.
pub const ROLE_VACANT: u32 = 0;
pub const ROLE_TAKEN: u32 = 1;
pub const ROLE_CLOSED: u32 = 2;
pub const ROLE_DIED: u32 = 3;
pub const ROLE_DESTROYED: u32 = 4;

/// Value of `RingParams::node` and `RingInfo::node`: any memory node.
pub const NODE_ANY: i32 = -1;

structure! {
    pub struct Header = "sluice_ring_header" {
        pub length: u32,
        pub state: u32,
    }
}

structure! {
    pub struct Ctrl = "sluice_ring_ctrl" {
        pub pos: u64,
        pub reserved0: [u64; 15],
        pub wait_flags: u32,
        pub wake_seq: u32,
        pub closed: u32,
        pub wake_ack: u32,
        pub features: u32,
        pub reserved1: [u32; 27],
    }
}

structure! {
    pub struct Hello = "sluice_ring_hello" {
        pub magic: u32,
        pub size: u32,
        pub version: u32,
        pub role: u32,
        pub flags: u32,
        pub data: u32,
        pub capacity: u64,
    }
}

structure! {
    pub struct Reply = "sluice_ring_reply" {
        pub magic: u32,
        pub error: u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_what_lies_in_memory() {
        let hello = Hello {
            magic: MAGIC,
            size: 2,
            version: 3,
            role: 4,
            flags: 5,
            data: 6,
            capacity: 7 << 40,
        };
        // SAFETY: it has no padding, and any bytes are a valid byte array.
        let memory: [u8; Hello::SIZE] = unsafe { std::mem::transmute(hello) };
        assert_eq!(hello.to_bytes(), memory);
        assert_eq!(Hello::from_bytes(&memory), hello);
        let reply = Reply { magic: 8, error: 9 };
        assert_eq!(Reply::from_bytes(&reply.to_bytes()), reply);
        assert_eq!(&reply.to_bytes()[..4], &8_u32.to_ne_bytes());
    }
}
