// SPDX-License-Identifier: MIT OR Apache-2.0
//! Maps over generic netlink: the commands and attributes of the family.

pub const FAMILY: &str = "sluice";
pub const VERSION: u8 = 1;
pub const VALUE_MAX: usize = 0x4000;
pub const HANDLES_MAX: usize = 64;
pub const STEPS_MAX: usize = 64;

pub const MAP_OPEN: u8 = 1;
pub const MAP_CLOSE: u8 = 2;
pub const MAP_GET: u8 = 3;
pub const MAP_SET: u8 = 4;
pub const MAP_DELETE: u8 = 5;
pub const MAP_BATCH: u8 = 6;
pub const MAP_DUMP: u8 = 7;
pub const MAP_WATCH: u8 = 8;
pub const MAP_INFO: u8 = 9;
pub const MAP_EVENT: u8 = 10;

/// Types of attributes.
pub mod attr {
    pub const PAD: u16 = 1;
    pub const NAME: u16 = 2;
    pub const SCOPE_FD: u16 = 3;
    pub const HANDLE: u16 = 4;
    pub const FLAGS: u16 = 5;
    pub const MODE: u16 = 6;
    pub const CAPACITY: u16 = 7;
    pub const ENTRIES_MAX: u16 = 8;
    pub const EVENTS: u16 = 9;
    pub const KEY: u16 = 10;
    pub const VALUE: u16 = 11;
    pub const VALUE_LENGTH: u16 = 12;
    pub const VERSION: u16 = 13;
    pub const IF_VERSION: u16 = 14;
    pub const TTL_NS: u16 = 15;
    pub const CREATED: u16 = 16;
    pub const KEYS: u16 = 17;
    pub const STEP: u16 = 18;
    pub const COMMAND: u16 = 19;
    pub const RESULT: u16 = 20;
    pub const AFTER: u16 = 21;
    pub const SEQUENCE: u16 = 22;
    pub const CHANGE: u16 = 23;
    pub const MISSED: u16 = 24;
    pub const BYTES: u16 = 25;
    pub const ENTRIES: u16 = 26;
    pub const EXPIRED: u16 = 27;
    pub const WATCHERS: u16 = 28;
    pub const DESTROYED: u16 = 29;
    pub const STORED: u16 = 30;
    pub const PENDING: u16 = 31;
    pub const MAX: u16 = PENDING;
}
