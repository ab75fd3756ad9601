// SPDX-License-Identifier: MIT OR Apache-2.0
//! Iterations of maps.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;

use sluice::map;

use super::endpoint::Map;
use super::entry::Entry;
use crate::error::Result;
use crate::input::{check_flags, given, has};
use crate::result::{give, put_next};

/// For sluice_map_iterate(): returns keys, versions and lengths, but no values.
pub const SLUICE_KEYS_ONLY: u32 = 1;

/// An iteration of a map. One thread at a time may use it.
pub struct Entries {
    /// Borrows the map, so it is dropped before it.
    source: Source,
    key: Vec<u8>,
    value: Vec<u8>,
    _map: Arc<sluice::Map>,
}

enum Source {
    Entries(map::Entries<'static>),
    Keys(map::Keys<'static>),
}

impl Entries {
    fn new(map: &Map, keys_only: bool) -> Self {
        let map = Arc::clone(&map.map);
        // SAFETY: the map is at this address as long as the iteration has its Arc.
        let borrowed: &'static sluice::Map = unsafe { &*Arc::as_ptr(&map) };
        Self {
            source: match keys_only {
                true => Source::Keys(borrowed.keys()),
                false => Source::Entries(borrowed.entries()),
            },
            key: Vec::new(),
            value: Vec::new(),
            _map: map,
        }
    }

    fn next(&mut self) -> Result<Option<Entry>> {
        let entry = match &mut self.source {
            Source::Keys(keys) => keys.next().transpose()?.map(|(key, info)| {
                self.key = key;
                Entry {
                    value: ptr::null(),
                    value_length: info.len,
                    ..Entry::new(&[], info.version, info.time_to_live)
                }
            }),
            Source::Entries(entries) => entries.next().transpose()?.map(|(key, entry)| {
                (self.key, self.value) = (key, entry.value);
                Entry::new(&self.value, entry.version, entry.time_to_live)
            }),
        };
        Ok(entry.map(|entry| entry.with_key(&self.key)))
    }
}

/// Begins an iteration of all entries, in no order. Each that exists during the whole iteration is returned once, one that is created
/// meanwhile not at all, one that is deleted meanwhile once or not at all. The flags are 0 or SLUICE_KEYS_ONLY.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_map_iterate(
    map: Option<&Map>,
    flags: u32,
    entries: Option<&mut MaybeUninit<*mut Entries>>,
) -> c_int {
    give(entries, || {
        check_flags(flags, SLUICE_KEYS_ONLY)?;
        Ok(Entries::new(given(map)?, has(flags, SLUICE_KEYS_ONLY)))
    })
}

/// The next entry: 1, or 0 after the last one. Key and value are valid until the next call for the iteration. An error ends it.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_entries_next(
    entries: Option<&mut Entries>,
    entry: Option<&mut MaybeUninit<Entry>>,
) -> c_int {
    put_next(entry, || given(entries)?.next())
}

/// Frees the iteration.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_entries_close(entries: Option<Box<Entries>>) {
    drop(entries);
}
