// SPDX-License-Identifier: MIT OR Apache-2.0
//! Maps: the calls of an endpoint and their structures, the records of a dump and the events of a watch.

use libc::Ioctl;

use super::{Setting, TYPE, size_of};

pub const KEY_MAX: usize = 4096;
pub const VALUE_MAX: usize = 0x10_0000;
pub const EVENTS_MAX: u32 = 0x1_0000;
pub const CAPACITY_MAX: u64 = 0x10_0000_0000;
/// The module's, for what is 0 in `Open` and `Params`.
pub const DEFAULT_CAPACITY: u64 = 4 << 20;
pub const DEFAULT_EVENTS: u32 = 1024;
pub const DEFAULT_DEADLINE_MS: u32 = 30_000;
pub const DEFAULT_INTERVAL_MS: u32 = 1000;

/// Bits of the `flags` of a map. `INTERVAL` and `REFUSE` require `DURABLE`, which excludes `MAPPED`.
pub const DURABLE: u32 = 0x01;
pub const INTERVAL: u32 = 0x02;
pub const REFUSE: u32 = 0x04;
pub const MAPPED: u32 = 0x08;

/// The module's, for what is 0 in `Params`.
pub const DEFAULT_CELL: u32 = 128;

/// Where the header and the table are mapped.
pub const MMAP_HEADER: u64 = 0;
pub const MMAP_TABLE: u64 = 0x20_0000;

pub const TABLE_MAX: u64 = 0x4_0000_0000;
pub const CELL_MIN: u32 = 64;
pub const CELL_MAX: u32 = 4096;
pub const BUCKET_CELLS: usize = 15;
pub const PROBES: u64 = 4;
pub const HASH_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
/// Value of `value_length` of a `Cell`: `GET` returns the value.
pub const CELL_ASK: u32 = u32::MAX;

/// Bits of the `flags` of an operation.
pub const IF_VERSION: u32 = 0x01;
pub const NOWAIT: u32 = 0x02;

/// Values of `command`.
pub const STEP_GET: u32 = 0;
pub const STEP_SET: u32 = 1;
pub const STEP_DELETE: u32 = 2;

pub const BATCH_MAX: usize = 256;

/// Bits of the `flags` of a dump.
pub const KEYS: u32 = 0x01;

/// Value of a `Setting` for `WATCH`: after the last change; for `SYNC`: up to the last change.
pub const NOW: u64 = u64::MAX;

/// Values of `change`.
pub const CREATED: u16 = 1;
pub const UPDATED: u16 = 2;
pub const DELETED: u16 = 3;
pub const EXPIRED: u16 = 4;

pub const PARAMS_SIZE_VER0: u32 = 24;
pub const OP_SIZE_VER0: u32 = 48;
pub const STEP_SIZE_VER0: u32 = 56;
pub const BATCH_SIZE_VER0: u32 = 24;
pub const DUMP_SIZE_VER0: u32 = 48;
pub const INFO_SIZE_VER0: u32 = 80;

pub const GET: Ioctl = libc::_IOWR::<Op>(TYPE, 0x50);
pub const SET: Ioctl = libc::_IOWR::<Op>(TYPE, 0x51);
pub const DELETE: Ioctl = libc::_IOWR::<Op>(TYPE, 0x52);
pub const BATCH: Ioctl = libc::_IOWR::<Batch>(TYPE, 0x53);
pub const DUMP: Ioctl = libc::_IOWR::<Dump>(TYPE, 0x54);
pub const WATCH: Ioctl = libc::_IOWR::<Setting>(TYPE, 0x55);
pub const INFO: Ioctl = libc::_IOWR::<Info>(TYPE, 0x56);
pub const SYNC: Ioctl = libc::_IOWR::<Setting>(TYPE, 0x57);

structure! {
    pub struct Params = "sluice_map_params" {
        pub size: u32,
        pub flags: u32,
        pub entries: u64,
        pub events: u32,
        pub deadline_ms: u32,
        pub interval_ms: u32,
        pub cell: u32,
        pub table: u64,
    }
}

structure! {
    pub struct Op = "sluice_map_op" {
        pub size: u32,
        pub flags: u32,
        pub key: u64,
        pub value: u64,
        pub key_length: u32,
        pub value_length: u32,
        pub version: u64,
        pub ttl_ns: u64,
    }
}

impl Op {
    /// A get into the room for a value. Stores only the addresses.
    pub fn get(key: &[u8], room: &mut [u8]) -> Self {
        Self {
            value: room.as_mut_ptr() as u64,
            value_length: length(room),
            ..Self::delete(key)
        }
    }

    /// A set without conditions, of an entry without a time to live. Stores only the addresses.
    pub fn set(key: &[u8], value: &[u8]) -> Self {
        Self {
            value: value.as_ptr() as u64,
            value_length: length(value),
            ..Self::delete(key)
        }
    }

    /// Adds the version that the entry must have, if one is given; 0: there must be no entry.
    pub fn require(self, version: Option<u64>) -> Self {
        match version {
            Some(version) => Self {
                flags: self.flags | IF_VERSION,
                version,
                ..self
            },
            None => self,
        }
    }

    /// A delete without conditions. Stores only the address.
    pub fn delete(key: &[u8]) -> Self {
        Self {
            key: key.as_ptr() as u64,
            key_length: length(key),
            ..Self::EMPTY
        }
    }
}

structure! {
    #[derive(Default)]
    pub struct Step = "sluice_map_step" {
        pub command: u32,
        pub result: i32,
        pub flags: u32,
        pub reserved: u32,
        pub key: u64,
        pub value: u64,
        pub key_length: u32,
        pub value_length: u32,
        pub version: u64,
        pub ttl_ns: u64,
    }
}

impl Step {
    /// The step of a single operation, of which `command` is the kind.
    pub fn new(command: u32, op: &Op) -> Self {
        Self {
            command,
            result: 0,
            flags: op.flags,
            reserved: 0,
            key: op.key,
            value: op.value,
            key_length: op.key_length,
            value_length: op.value_length,
            version: op.version,
            ttl_ns: op.ttl_ns,
        }
    }
}

structure! {
    pub struct Batch = "sluice_map_batch" {
        pub size: u32,
        pub count: u32,
        pub steps: u64,
        pub step_size: u32,
        pub reserved: u32,
    }
}

impl Batch {
    /// Stores only the address of `steps`.
    pub fn new(steps: *mut Step, count: usize) -> Self {
        Self {
            size: size_of::<Self>(),
            count: u32::try_from(count).unwrap_or(u32::MAX),
            steps: steps as u64,
            step_size: size_of::<Step>(),
            reserved: 0,
        }
    }
}

structure! {
    #[derive(Default)]
    pub struct Cursor = "sluice_map_cursor" {
        pub since: u64,
        pub id: u64,
        pub shard: u32,
        pub reserved: u32,
    }
}

structure! {
    pub struct Dump = "sluice_map_dump" {
        pub size: u32,
        pub flags: u32,
        pub records: u64,
        pub length: u32,
        pub count: u32,
        pub cursor: Cursor,
    }
}

impl Dump {
    /// The entries after `cursor`, as many as `room` holds. Stores only the address.
    pub fn new(flags: u32, cursor: Cursor, room: &mut [u8]) -> Self {
        Self {
            size: size_of::<Self>(),
            flags,
            records: room.as_mut_ptr() as u64,
            length: length(room),
            count: 0,
            cursor,
        }
    }
}

structure! {
    /// Precedes the key and the value of an entry in a dump.
    pub struct Record = "sluice_map_record" {
        pub size: u32,
        pub value_length: u32,
        pub version: u64,
        pub ttl_ns: u64,
        pub key_length: u16,
        pub header: u16,
        pub reserved: u32,
    }
}

structure! {
    /// Precedes the key of a change in the result of read(2).
    pub struct Event = "sluice_map_event" {
        pub size: u32,
        pub change: u16,
        pub key_length: u16,
        pub sequence: u64,
        pub version: u64,
        pub missed: u64,
    }
}

structure! {
    pub struct Info = "sluice_map_info" {
        pub size: u32,
        pub flags: u32,
        pub capacity: u64,
        pub bytes: u64,
        pub entries_max: u64,
        pub entries: u64,
        pub sequence: u64,
        pub expired: u64,
        pub missed: u64,
        pub events: u32,
        pub watchers: u32,
        pub watched: u64,
        pub stored: u64,
        pub pending: u64,
        pub deadline_ms: u32,
        pub interval_ms: u32,
        pub error: u32,
        pub cell: u32,
        pub table: u64,
    }
}

structure! {
    /// The header of the mapped table.
    pub struct Header = "sluice_map_header" {
        pub seed: u64,
        pub table: u64,
        pub cell: u32,
        pub destroyed: u32,
        pub reserved: [u64; 5],
        pub unplaced: u64,
    }
}

structure! {
    /// The beginning of a block of the mapped table.
    pub struct Bucket = "sluice_map_bucket" {
        pub tags: [u32; BUCKET_CELLS],
        pub elsewhere: u32,
    }
}

structure! {
    /// Precedes the key in a cell of the mapped table.
    pub struct Cell = "sluice_map_cell" {
        pub sequence: u64,
        pub version: u64,
        pub expires_ns: u64,
        pub value_length: u32,
        pub key_length: u16,
        pub reserved: u16,
    }
}

sized!(Params, Op, Info);

/// A length that a field cannot hold is invalid for the kernel.
pub(crate) fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_converted_as_it_lies_in_memory() {
        let record = Record {
            size: 1 << 20,
            value_length: 2,
            version: 3 << 40,
            ttl_ns: 4 << 50,
            key_length: 4096,
            header: 32,
            reserved: 5,
        };
        // SAFETY: it has no padding, and any bytes are a valid byte array.
        let memory: [u8; Record::SIZE] = unsafe { std::mem::transmute(record) };
        assert_eq!(record.to_bytes(), memory);
        assert_eq!(Record::from_bytes(&memory), record);
    }

    #[test]
    fn an_event_is_converted_as_it_lies_in_memory() {
        let event = Event {
            size: 40,
            change: EXPIRED,
            key_length: 4096,
            sequence: 1 << 40,
            version: 2 << 50,
            missed: 3,
        };
        // SAFETY: as above.
        let memory: [u8; Event::SIZE] = unsafe { std::mem::transmute(event) };
        assert_eq!(event.to_bytes(), memory);
        assert_eq!(Event::from_bytes(&memory), event);
    }

    #[test]
    fn a_step_has_the_fields_of_its_operation() {
        let op = Op {
            ttl_ns: 8,
            ..Op::set(b"key", b"value").require(Some(7))
        };
        let step = Step::new(STEP_SET, &op);
        assert_eq!((step.key, step.value), (op.key, op.value));
        assert_eq!((step.key_length, step.value_length), (3, 5));
        let expected = (IF_VERSION, 7, 8);
        assert_eq!((step.flags, step.version, step.ttl_ns), expected);
        assert_eq!(Op::delete(b"key").require(None).flags, 0);
    }
}
