// SPDX-License-Identifier: MIT OR Apache-2.0
//! The keeper of durable maps: the messages that its descriptor returns, and the calls that answer them.

use libc::Ioctl;

use super::map::length;
use super::{NAME_SIZE, TYPE, padded, size_of, unpadded};

/// Values of `type`.
pub const OPEN: u32 = 1;
pub const RESUME: u32 = 2;
pub const SET: u32 = 3;
pub const DELETE: u32 = 4;
pub const EXPIRE: u32 = 5;
pub const UNLINK: u32 = 6;
pub const CLOSED: u32 = 7;
pub const SYNC: u32 = 8;

pub const RESTORE_MAX: usize = 256;

/// Bits of the `flags` of a `Keep`.
pub const TABLES: u32 = 0x01;

/// Bits of the `flags` of an `End`.
pub const UNLINKED: u32 = 0x01;

pub const KEEP_SIZE_VER0: u32 = 8;
pub const MAP_SIZE_VER0: u32 = 120;
pub const CREATE_SIZE_VER0: u32 = 40;
pub const ENTRY_SIZE_VER0: u32 = 40;
pub const RESTORE_SIZE_VER0: u32 = 32;
pub const READY_SIZE_VER0: u32 = 16;
pub const ACK_SIZE_VER0: u32 = 32;
pub const END_SIZE_VER0: u32 = 24;

pub const CREATE: Ioctl = libc::_IOWR::<Create>(TYPE, 0x60);
pub const RESTORE: Ioctl = libc::_IOWR::<Restore>(TYPE, 0x61);
pub const READY: Ioctl = libc::_IOW::<Ready>(TYPE, 0x62);
pub const ACK: Ioctl = libc::_IOW::<Ack>(TYPE, 0x63);
pub const END: Ioctl = libc::_IOW::<End>(TYPE, 0x64);

structure! {
    pub struct Keep = "sluice_keep" {
        pub size: u32,
        pub flags: u32,
    }
}

structure! {
    /// Precedes the key and the value of a message in the result of read(2).
    #[derive(Default)]
    pub struct Message = "sluice_keep_message" {
        pub size: u32,
        pub r#type: u32,
        pub stream: u64,
        pub sequence: u64,
        pub expires_ns: u64,
        pub key_length: u32,
        pub value_length: u32,
        pub header: u32,
        pub reserved: u32,
    }
}

structure! {
    pub struct Map = "sluice_keep_map" {
        pub size: u32,
        pub flags: u32,
        pub open_flags: u32,
        pub administrator: u32,
        pub uid: u32,
        pub gid: u32,
        pub mode: u32,
        pub events: u32,
        pub name: [u8; NAME_SIZE],
        pub capacity: u64,
        pub entries: u64,
        pub deadline_ms: u32,
        pub interval_ms: u32,
        pub cell: u32,
        pub reserved: u32,
        pub table: u64,
    }
}

impl Map {
    /// Of this name and with these flags; all other fields are 0.
    pub fn new(name: impl AsRef<[u8]>, flags: u32) -> Self {
        Self {
            flags,
            name: padded(name),
            ..Self::EMPTY
        }
    }

    /// The name without the padding.
    pub fn name(&self) -> &[u8] {
        unpadded(&self.name)
    }
}

structure! {
    pub struct Create = "sluice_keep_create" {
        pub size: u32,
        pub scope_fd: i32,
        pub stream: u64,
        pub map: u64,
        pub sequence: u64,
        pub limit: u64,
    }
}

impl Create {
    /// For the open of `stream`, or without a stream (0) in a scope. Stores only the address of `map`.
    pub fn new(stream: u64, scope_fd: i32, map: &Map, sequence: u64, limit: u64) -> Self {
        Self {
            size: size_of::<Self>(),
            scope_fd,
            stream,
            map: std::ptr::from_ref(map) as u64,
            sequence,
            limit,
        }
    }
}

structure! {
    #[derive(Default)]
    pub struct Entry = "sluice_keep_entry" {
        pub key: u64,
        pub value: u64,
        pub key_length: u32,
        pub value_length: u32,
        pub version: u64,
        pub expires_ns: u64,
    }
}

impl Entry {
    /// Stores only the addresses.
    pub fn new(key: &[u8], value: &[u8], version: u64, expires_ns: u64) -> Self {
        Self {
            key: key.as_ptr() as u64,
            value: value.as_ptr() as u64,
            key_length: length(key),
            value_length: length(value),
            version,
            expires_ns,
        }
    }
}

structure! {
    pub struct Restore = "sluice_keep_restore" {
        pub size: u32,
        pub count: u32,
        pub stream: u64,
        pub entries: u64,
        pub entry_size: u32,
        pub reserved: u32,
    }
}

impl Restore {
    /// Stores only the address of `entries`.
    pub fn new(stream: u64, entries: &[Entry]) -> Self {
        Self {
            size: size_of::<Self>(),
            count: u32::try_from(entries.len()).unwrap_or(u32::MAX),
            stream,
            entries: entries.as_ptr() as u64,
            entry_size: size_of::<Entry>(),
            reserved: 0,
        }
    }
}

structure! {
    pub struct Ready = "sluice_keep_ready" {
        pub size: u32,
        pub error: u32,
        pub stream: u64,
    }
}

impl Ready {
    /// `error` is an errno; 0: the map is complete.
    pub const fn new(stream: u64, error: u32) -> Self {
        Self {
            size: size_of::<Self>(),
            error,
            stream,
        }
    }
}

structure! {
    pub struct Ack = "sluice_keep_ack" {
        pub size: u32,
        pub error: u32,
        pub stream: u64,
        pub sequence: u64,
        pub limit: u64,
    }
}

impl Ack {
    /// A sequence or limit of 0 leaves it unchanged. `error` is an errno; 0: the store works.
    pub const fn new(stream: u64, sequence: u64, limit: u64, error: u32) -> Self {
        Self {
            size: size_of::<Self>(),
            error,
            stream,
            sequence,
            limit,
        }
    }
}

structure! {
    pub struct End = "sluice_keep_end" {
        pub size: u32,
        pub flags: u32,
        pub stream: u64,
        pub error: u32,
        pub reserved: u32,
    }
}

impl End {
    /// `error` is an errno, with `UNLINKED` only; 0: the stored map is deleted.
    pub const fn new(stream: u64, flags: u32, error: u32) -> Self {
        Self {
            size: size_of::<Self>(),
            flags,
            stream,
            error,
            reserved: 0,
        }
    }
}

sized!(Keep, Map);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_converted_as_it_lies_in_memory() {
        let message = Message {
            size: 64,
            r#type: SET,
            stream: 1 << 40,
            sequence: 2 << 50,
            expires_ns: 3 << 60,
            key_length: 4,
            value_length: 5,
            header: 48,
            reserved: 6,
        };
        // SAFETY: it has no padding, and any bytes are a valid byte array.
        let memory: [u8; Message::SIZE] = unsafe { std::mem::transmute(message) };
        assert_eq!(message.to_bytes(), memory);
        assert_eq!(Message::from_bytes(&memory), message);
    }

    #[test]
    fn a_map_is_converted_as_it_lies_in_memory() {
        let map = Map {
            open_flags: 1,
            administrator: 2,
            uid: 3,
            gid: 4,
            mode: 0o640,
            events: 5,
            capacity: 6 << 40,
            entries: 7 << 50,
            deadline_ms: 8,
            interval_ms: 9,
            cell: 10,
            table: 11 << 40,
            ..Map::new("a name", crate::map::DURABLE)
        };
        // SAFETY: as above.
        let memory: [u8; Map::SIZE] = unsafe { std::mem::transmute(map) };
        assert_eq!(map.to_bytes(), memory);
        assert_eq!(Map::from_bytes(&memory), map);
        assert_eq!(map.name(), b"a name");
    }
}
