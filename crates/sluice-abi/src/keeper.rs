// SPDX-License-Identifier: MIT OR Apache-2.0
//! The keeper of durable maps: the messages that its descriptor returns, and the calls that answer them.

use libc::Ioctl;

use super::map::{length, part};
use super::{NAME_SIZE, TYPE, padded, size_of};

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

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    pub size: u32,
    pub flags: u32,
}

impl Default for Keep {
    fn default() -> Self {
        Self {
            size: size_of::<Self>(),
            flags: 0,
        }
    }
}

/// Precedes the key and the value of a message in the result of read(2).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Message {
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

impl Message {
    pub const SIZE: usize = std::mem::size_of::<Self>();

    pub fn from_bytes(bytes: &[u8; Self::SIZE]) -> Self {
        Self {
            size: u32::from_ne_bytes(part(bytes, 0)),
            r#type: u32::from_ne_bytes(part(bytes, 4)),
            stream: u64::from_ne_bytes(part(bytes, 8)),
            sequence: u64::from_ne_bytes(part(bytes, 16)),
            expires_ns: u64::from_ne_bytes(part(bytes, 24)),
            key_length: u32::from_ne_bytes(part(bytes, 32)),
            value_length: u32::from_ne_bytes(part(bytes, 36)),
            header: u32::from_ne_bytes(part(bytes, 40)),
            reserved: u32::from_ne_bytes(part(bytes, 44)),
        }
    }

    /// As read(2) returns it.
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        let words = [self.size, self.r#type].map(u32::to_ne_bytes);
        let fields = [self.stream, self.sequence, self.expires_ns].map(u64::to_ne_bytes);
        let lengths = [
            self.key_length,
            self.value_length,
            self.header,
            self.reserved,
        ]
        .map(u32::to_ne_bytes);
        bytes[..8].copy_from_slice(words.as_flattened());
        bytes[8..32].copy_from_slice(fields.as_flattened());
        bytes[32..].copy_from_slice(lengths.as_flattened());
        bytes
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Map {
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
}

impl Map {
    pub const SIZE: usize = std::mem::size_of::<Self>();

    /// Of this name and with these flags; all other fields are 0.
    pub fn new(name: impl AsRef<[u8]>, flags: u32) -> Self {
        Self {
            size: size_of::<Self>(),
            flags,
            open_flags: 0,
            administrator: 0,
            uid: 0,
            gid: 0,
            mode: 0,
            events: 0,
            name: padded(name),
            capacity: 0,
            entries: 0,
            deadline_ms: 0,
            interval_ms: 0,
        }
    }

    /// The name without the padding.
    pub fn name(&self) -> &[u8] {
        let end = self.name.iter().position(|byte| *byte == 0);
        &self.name[..end.unwrap_or(NAME_SIZE)]
    }

    pub fn from_bytes(bytes: &[u8; Self::SIZE]) -> Self {
        Self {
            size: u32::from_ne_bytes(part(bytes, 0)),
            flags: u32::from_ne_bytes(part(bytes, 4)),
            open_flags: u32::from_ne_bytes(part(bytes, 8)),
            administrator: u32::from_ne_bytes(part(bytes, 12)),
            uid: u32::from_ne_bytes(part(bytes, 16)),
            gid: u32::from_ne_bytes(part(bytes, 20)),
            mode: u32::from_ne_bytes(part(bytes, 24)),
            events: u32::from_ne_bytes(part(bytes, 28)),
            name: part(bytes, 32),
            capacity: u64::from_ne_bytes(part(bytes, 96)),
            entries: u64::from_ne_bytes(part(bytes, 104)),
            deadline_ms: u32::from_ne_bytes(part(bytes, 112)),
            interval_ms: u32::from_ne_bytes(part(bytes, 116)),
        }
    }

    /// As a message contains it.
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        let words = [
            self.size,
            self.flags,
            self.open_flags,
            self.administrator,
            self.uid,
            self.gid,
            self.mode,
            self.events,
        ]
        .map(u32::to_ne_bytes);
        let limits = [self.capacity, self.entries].map(u64::to_ne_bytes);
        let times = [self.deadline_ms, self.interval_ms].map(u32::to_ne_bytes);
        bytes[..32].copy_from_slice(words.as_flattened());
        bytes[32..96].copy_from_slice(&self.name);
        bytes[96..112].copy_from_slice(limits.as_flattened());
        bytes[112..].copy_from_slice(times.as_flattened());
        bytes
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Create {
    pub size: u32,
    pub scope_fd: i32,
    pub stream: u64,
    pub map: u64,
    pub sequence: u64,
    pub limit: u64,
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

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    pub key: u64,
    pub value: u64,
    pub key_length: u32,
    pub value_length: u32,
    pub version: u64,
    pub expires_ns: u64,
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

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restore {
    pub size: u32,
    pub count: u32,
    pub stream: u64,
    pub entries: u64,
    pub entry_size: u32,
    pub reserved: u32,
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

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    pub size: u32,
    pub error: u32,
    pub stream: u64,
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

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    pub size: u32,
    pub error: u32,
    pub stream: u64,
    pub sequence: u64,
    pub limit: u64,
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

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    pub size: u32,
    pub flags: u32,
    pub stream: u64,
    pub error: u32,
    pub reserved: u32,
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
            ..Map::new("a name", crate::map::DURABLE)
        };
        // SAFETY: as above.
        let memory: [u8; Map::SIZE] = unsafe { std::mem::transmute(map) };
        assert_eq!(map.to_bytes(), memory);
        assert_eq!(Map::from_bytes(&memory), map);
        assert_eq!(map.name(), b"a name");
    }
}
