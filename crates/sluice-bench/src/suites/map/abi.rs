// SPDX-License-Identifier: MIT OR Apache-2.0
//! The calls of maps that the suite uses, from include/uapi/linux/sluice.h.

use libc::Ioctl;

const TYPE: u32 = 0xC7;

pub const KIND_MAP: u32 = 5;

pub const GET: Ioctl = libc::_IOWR::<Op>(TYPE, 0x50);
pub const SET: Ioctl = libc::_IOWR::<Op>(TYPE, 0x51);
pub const BATCH: Ioctl = libc::_IOWR::<Batch>(TYPE, 0x53);
pub const DUMP: Ioctl = libc::_IOWR::<Dump>(TYPE, 0x54);

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Op {
    pub size: u32,
    pub flags: u32,
    pub key: u64,
    pub value: u64,
    pub key_length: u32,
    pub value_length: u32,
    pub version: u64,
    pub ttl_ns: u64,
}

/// Value of `command`.
pub const STEP_GET: u32 = 0;

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Step {
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

#[repr(C)]
pub struct Batch {
    pub size: u32,
    pub count: u32,
    pub steps: u64,
    pub step_size: u32,
    pub reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Cursor {
    pub since: u64,
    pub id: u64,
    pub shard: u32,
    pub reserved: u32,
}

/// Precedes the key and the value of an entry in a dump.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Record {
    pub size: u32,
    pub value_length: u32,
    pub version: u64,
    pub ttl_ns: u64,
    pub key_length: u16,
    pub header: u16,
    pub reserved: u32,
}

#[repr(C)]
pub struct Dump {
    pub size: u32,
    pub flags: u32,
    pub records: u64,
    pub length: u32,
    pub count: u32,
    pub cursor: Cursor,
}

const _: () = {
    assert!(size_of::<Op>() == 48);
    assert!(size_of::<Step>() == 56);
    assert!(size_of::<Batch>() == 24);
    assert!(size_of::<Record>() == 32);
    assert!(size_of::<Dump>() == 48);
};
