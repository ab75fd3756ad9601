// SPDX-License-Identifier: MIT OR Apache-2.0
//! The watchers of maps.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd as _;

use sluice::map::{self, Change, WatchFrom};

use super::endpoint::Map;
use crate::error::Result;
use crate::input::{Timeout, given};
use crate::result::{call, give, put};

/// For sluice_map_watch(): the changes from now on.
pub const SLUICE_WATCH_NOW: u64 = u64::MAX;

/// A change in struct sluice_event: the entry was created.
pub const SLUICE_MAP_CREATED: u32 = 1;
/// The value or the time to live of the entry was set.
pub const SLUICE_MAP_UPDATED: u32 = 2;
/// The entry was deleted.
pub const SLUICE_MAP_DELETED: u32 = 3;
/// The time to live of the entry is over.
pub const SLUICE_MAP_EXPIRED: u32 = 4;

/// Receives the changes of a map, in their order. One thread at a time may use it, and one process.
pub struct Watcher {
    watcher: map::Watcher,
    /// Of the last event.
    key: Vec<u8>,
}

/// A change of a map.
#[repr(C)]
pub struct Event {
    /// SLUICE_MAP_CREATED and others, or the number of a change that this library does not know.
    pub change: u32,
    pub reserved_word: u32,
    /// Valid until the next call for the watcher.
    pub key: *const c_void,
    pub key_length: usize,
    /// The number of the change.
    pub sequence: u64,
    /// The version of the entry; of one that was deleted or has expired, the version that it had.
    pub version: u64,
    /// Changes directly before this one that the watcher has missed.
    pub missed: u64,
    pub reserved: [u64; 2],
}

fn number(change: Change) -> u32 {
    match change {
        Change::Created => SLUICE_MAP_CREATED,
        Change::Updated => SLUICE_MAP_UPDATED,
        Change::Deleted => SLUICE_MAP_DELETED,
        Change::Expired => SLUICE_MAP_EXPIRED,
        Change::Other(number) => number.into(),
        _ => 0,
    }
}

impl Watcher {
    fn recv(&mut self, timeout: Timeout) -> Result<Event> {
        let event = timeout.run(|wait| self.watcher.recv_within(wait))?;
        self.key = event.key;
        Ok(Event {
            change: number(event.change),
            reserved_word: 0,
            key: self.key.as_ptr().cast(),
            key_length: self.key.len(),
            sequence: event.sequence,
            version: event.version,
            missed: event.missed,
            reserved: [0; 2],
        })
    }
}

/// Watches a map: receives the changes after the one with the number `after`, all if it is 0, or those from now on if it is
/// SLUICE_WATCH_NOW. An open map has one watcher at a time; a second one fails with -EBUSY.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_map_watch(
    map: Option<&Map>,
    after: u64,
    watcher: Option<&mut MaybeUninit<*mut Watcher>>,
) -> c_int {
    give(watcher, || {
        let from = match after {
            SLUICE_WATCH_NOW => WatchFrom::Now,
            after => WatchFrom::After(after),
        };
        Ok(Watcher {
            watcher: given(map)?.map.watch(from)?,
            key: Vec::new(),
        })
    })
}

/// Receives the next event, and returns 0. Waits for one. Fails with -EPIPE if the map was destroyed.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_watcher_recv(
    watcher: Option<&mut Watcher>,
    event: Option<&mut MaybeUninit<Event>>,
    timeout_ms: c_int,
) -> c_int {
    put(event, || given(watcher)?.recv(Timeout(timeout_ms)))
}

/// The descriptor of the endpoint, which is readable when there is an event, or the map was destroyed. A call receives several events
/// ahead. The descriptor does not tell of them: call with a timeout of 0 until -EAGAIN before waiting for it. It belongs to the watcher.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_watcher_fd(watcher: Option<&Watcher>) -> c_int {
    call(|| Ok(given(watcher)?.watcher.as_raw_fd()))
}

/// The number of the last change before the first event. 0 if the watcher is NULL.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_watcher_since(watcher: Option<&Watcher>) -> u64 {
    watcher.map_or(0, |watcher| watcher.watcher.since())
}

/// Ends the watch and frees the watcher.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_watcher_close(watcher: Option<Box<Watcher>>) {
    drop(watcher);
}
