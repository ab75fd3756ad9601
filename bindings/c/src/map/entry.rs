// SPDX-License-Identifier: MIT OR Apache-2.0
//! The entries of maps.

use std::ffi::c_void;
use std::ptr;
use std::time::Duration;

use crate::input::nanoseconds;

/// An entry of a map.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Entry {
    /// Of an iteration; otherwise NULL.
    pub key: *const c_void,
    pub key_length: usize,
    /// Of an iteration with values, or the buffer of a get; otherwise NULL.
    pub value: *const c_void,
    pub value_length: usize,
    /// The number of the last change of the entry.
    pub version: u64,
    /// The remaining time to live when the entry was read, in nanoseconds. 0: it never expires.
    pub time_to_live_ns: u64,
    pub reserved: [u64; 2],
}

impl Entry {
    pub fn new(value: &[u8], version: u64, time_to_live: Option<Duration>) -> Self {
        Self {
            value: value.as_ptr().cast(),
            value_length: value.len(),
            version,
            time_to_live_ns: left(time_to_live),
            ..Self::of_length(0)
        }
    }

    /// An entry of which only the length of its value is known.
    pub fn of_length(value_length: usize) -> Self {
        Self {
            key: ptr::null(),
            key_length: 0,
            value: ptr::null(),
            value_length,
            version: 0,
            time_to_live_ns: 0,
            reserved: [0; 2],
        }
    }

    pub fn with_key(self, key: &[u8]) -> Self {
        Self {
            key: key.as_ptr().cast(),
            key_length: key.len(),
            ..self
        }
    }
}

/// 0 is no limit, and an entry whose time is over is not returned.
pub fn left(time_to_live: Option<Duration>) -> u64 {
    time_to_live.map_or(0, |time| nanoseconds(time).max(1))
}
