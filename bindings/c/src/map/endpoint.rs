// SPDX-License-Identifier: MIT OR Apache-2.0
//! Open maps.

use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd as _;
use std::sync::Arc;

use libc::ssize_t;
use sluice::Map as SluiceMap;
use sluice::map::{MapInfo, ReadError, WriteError};

use super::entry::Entry;
use super::options::{Change, ChangeOptions, MapOptions, SLUICE_DURABLE, SLUICE_DURABLE_INTERVAL};
use crate::error::{Failure, Result};
use crate::input::{bytes, given, options, owned, room, text};
use crate::options::in_scope;
use crate::result::{call, give, put, put_optional};

/// An open map. Several threads may use it at the same time. A child of fork(2) may use it, too.
///
/// Keys have 1 to 4096 bytes, values up to 1 MiB. Calls that read wait for nothing. Of a durable map, calls that change entries wait for
/// its store up to the deadline of the map.
pub struct Map {
    /// Iterations keep it, so that it may be closed before them.
    pub map: Arc<SluiceMap>,
}

impl From<SluiceMap> for Map {
    fn from(map: SluiceMap) -> Self {
        Self { map: Arc::new(map) }
    }
}

/// The state of a map. The counts are totals since the map was created.
#[repr(C)]
pub struct MapState {
    /// Bytes.
    pub capacity: u64,
    /// Bytes in use: keys, values, and the memory that entries need beside them.
    pub bytes: u64,
    /// The most entries that it may have, or 0.
    pub entries_max: u64,
    pub entries: u64,
    /// The number of the last change.
    pub sequence: u64,
    /// Entries that have expired.
    pub expired: u64,
    /// Changes that watchers have missed.
    pub missed: u64,
    /// Changes that are kept for watchers.
    pub events: u32,
    /// Endpoints that watch.
    pub watchers: u32,
    /// SLUICE_VOLATILE and others. What follows is of durable maps.
    pub durability: u32,
    /// 1 if a change that would wait for room is refused instead.
    pub refuses: u32,
    pub interval_ms: u32,
    pub deadline_ms: u32,
    /// All changes up to this number are stored.
    pub stored: u64,
    /// Bytes of changes that are not stored yet.
    pub pending: u64,
    /// The errno because of which the store takes no changes. 0: it works, or there is no daemon.
    pub store_error: i32,
    pub reserved_word: u32,
    pub reserved: [u64; 4],
}

impl From<MapInfo> for MapState {
    fn from(info: MapInfo) -> Self {
        let mut state = Self {
            capacity: info.capacity,
            bytes: info.bytes,
            entries_max: info.entries_max.unwrap_or(0),
            entries: info.entries,
            sequence: info.sequence,
            expired: info.expired,
            missed: info.missed,
            events: info.events,
            watchers: info.watchers,
            durability: 0,
            refuses: 0,
            interval_ms: 0,
            deadline_ms: 0,
            stored: 0,
            pending: 0,
            store_error: 0,
            reserved_word: 0,
            reserved: [0; 4],
        };
        if let Some(durable) = info.durable {
            let milliseconds = |time: std::time::Duration| time.as_millis() as u32;
            state.durability = match durable.interval {
                Some(_) => SLUICE_DURABLE_INTERVAL,
                None => SLUICE_DURABLE,
            };
            state.refuses = durable.refuse.into();
            state.interval_ms = durable.interval.map_or(0, milliseconds);
            state.deadline_ms = milliseconds(durable.deadline);
            state.stored = durable.stored;
            state.pending = durable.pending;
            state.store_error = durable.store_error.map_or(0, sluice::StoreError::errno);
        }
        state
    }
}

/// # Safety
/// As of sluice_map_open().
unsafe fn named(name: *const c_char, passed: *const MapOptions) -> Result<sluice::map::Options> {
    // SAFETY: as the caller guarantees.
    unsafe { options(passed)?.named(text(name)?) }
}

/// Opens a map to read and to change it. An open of a durable map with SLUICE_CREATE asks the daemon for a map that the module does not
/// have, up to the deadline; with SLUICE_EXCLUSIVE a signal ends it as it ends sluice_map_create().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_map_open(
    name: *const c_char,
    options: *const MapOptions,
    map: Option<&mut MaybeUninit<*mut Map>>,
) -> c_int {
    give(map, || {
        // SAFETY: the conventions.
        Ok(unsafe { named(name, options) }?.open()?)
    })
}

/// Opens a map to get entries and to watch it, for which the permission to read suffices.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_map_open_reader(
    name: *const c_char,
    options: *const MapOptions,
    map: Option<&mut MaybeUninit<*mut Map>>,
) -> c_int {
    give(map, || {
        // SAFETY: the conventions.
        Ok(unsafe { named(name, options) }?.open_reader()?)
    })
}

/// Opens a map to set and delete entries, for which the permission to write suffices.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_map_open_writer(
    name: *const c_char,
    options: *const MapOptions,
    map: Option<&mut MaybeUninit<*mut Map>>,
) -> c_int {
    give(map, || {
        // SAFETY: the conventions.
        Ok(unsafe { named(name, options) }?.open_writer()?)
    })
}

/// Uses an endpoint that was inherited or received. The descriptor belongs to the library from then on, also after a failure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_map_attach(
    fd: c_int,
    map: Option<&mut MaybeUninit<*mut Map>>,
) -> c_int {
    // SAFETY: the conventions.
    let endpoint = unsafe { owned(fd) };
    give(map, || Ok(SluiceMap::attach(endpoint?)?))
}

/// Creates a map that exists until it is removed. Fails with -EEXIST if it exists. Of a durable map, -EINTR means that a signal arrived while
/// the daemon was asked, which may have created the map: open it without SLUICE_EXCLUSIVE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_map_create(
    name: *const c_char,
    options: *const MapOptions,
) -> c_int {
    call(|| {
        // SAFETY: the conventions.
        unsafe { named(name, options) }?.create_persistent()?;
        Ok(())
    })
}

/// Copies the value of a key to a buffer, and returns its length. Fails with -ENOENT if there is no entry, and with -EMSGSIZE if the value
/// is longer than the buffer. `entry` is NULL, or receives version and time to live of the entry; after -EMSGSIZE the length of its value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_map_get(
    map: Option<&Map>,
    key: *const c_void,
    key_length: usize,
    buffer: *mut c_void,
    size: usize,
    entry: Option<&mut MaybeUninit<Entry>>,
) -> ssize_t {
    call(|| {
        // SAFETY: the conventions.
        let (key, buffer) = unsafe { (bytes(key, key_length)?, room(buffer, size)?) };
        let found = match (given(map)?.map.get_into(key, buffer), entry) {
            (Ok(Some(info)), Some(entry)) => {
                let value = &buffer[..info.len];
                entry.write(Entry::new(value, info.version, info.time_to_live));
                Some(info.len)
            }
            (Err(ReadError::BufferTooSmall { len, room }), Some(entry)) => {
                entry.write(Entry::of_length(len));
                return Err(ReadError::BufferTooSmall { len, room }.into());
            }
            (found, _) => found?.map(|info| info.len),
        };
        found.ok_or_else(no_entry)
    })
}

/// Costs no allocation.
pub fn no_entry() -> Failure {
    Failure::new(
        libc::ENOENT,
        c"the map has no entry of this key",
        c"set it first",
    )
}

/// # Safety
/// The options are NULL or valid.
unsafe fn change(passed: *const ChangeOptions) -> Result<Change> {
    // SAFETY: as the caller guarantees.
    Ok(unsafe { options(passed) }?.into())
}

/// The version that a failed change tells, if it tells one.
pub fn version_of(error: &WriteError) -> Option<u64> {
    match error {
        WriteError::VersionMismatch { found, .. } => Some(*found),
        WriteError::Unacknowledged { number } => Some(*number),
        _ => None,
    }
}

/// Sets the value of a key: 1 if that created the entry, otherwise 0. The options may be NULL. `version` is NULL, or receives the version
/// of the entry from then on.
///
/// With SLUICE_IF_VERSION it fails with -EEXIST if version 0 is required and there is an entry, with -ENOENT if there is none, and with
/// -ESTALE if the entry has another version, which `version` receives. Of a durable map -ETIMEDOUT means that the change is made, but not
/// known to be stored; `version` receives its number, and sluice_map_sync() waits for it. All other errors mean that nothing has changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_map_set(
    map: Option<&Map>,
    key: *const c_void,
    key_length: usize,
    value: *const c_void,
    value_length: usize,
    options: *const ChangeOptions,
    version: Option<&mut MaybeUninit<u64>>,
) -> c_int {
    call(|| {
        // SAFETY: the conventions.
        let (key, value) = unsafe { (bytes(key, key_length)?, bytes(value, value_length)?) };
        // SAFETY: the conventions.
        let options = unsafe { change(options) }?.set()?;
        let result = given(map)?.map.set_with(key, value, options);
        let number = match &result {
            Ok(set) => Some(set.version),
            Err(error) => version_of(error),
        };
        put_optional(version, number);
        Ok(result?.created)
    })
}

/// Deletes the entry of a key: 1, or 0 if there is none. The options may be NULL; they have no time to live. `number` is NULL, or receives
/// the number of the change, 0 if there was no entry. Has the errors of sluice_map_set().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_map_delete(
    map: Option<&Map>,
    key: *const c_void,
    key_length: usize,
    options: *const ChangeOptions,
    number: Option<&mut MaybeUninit<u64>>,
) -> c_int {
    call(|| {
        // SAFETY: the conventions.
        let (key, options) = unsafe { (bytes(key, key_length)?, change(options)?.delete()?) };
        let result = given(map)?.map.delete_with(key, options);
        let changed = match &result {
            Ok(deleted) => Some(deleted.unwrap_or(0)),
            Err(error) => version_of(error),
        };
        put_optional(number, changed);
        Ok(result?.is_some())
    })
}

/// Waits until the changes of a durable map up to `number` are stored, or all so far if it is 0, up to the deadline of the map. `stored` is
/// NULL, or receives the number up to which they are. Fails with -ETIMEDOUT if they are not known to be stored.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_map_sync(
    map: Option<&Map>,
    number: u64,
    stored: Option<&mut MaybeUninit<u64>>,
) -> c_int {
    call(|| {
        let map = &given(map)?.map;
        let synced = match number {
            0 => map.sync(),
            number => map.sync_to(number),
        }?;
        put_optional(stored, Some(synced));
        Ok(())
    })
}

/// The descriptor of the endpoint. The descriptor of a writer of a durable map reports POLLOUT when a change would be admitted or fail at
/// once, and POLLPRI when all changes that were made through it are stored. It belongs to the map.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_map_fd(map: Option<&Map>) -> c_int {
    call(|| Ok(given(map)?.map.as_raw_fd()))
}

/// Queries the state of the map.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_map_info(
    map: Option<&Map>,
    state: Option<&mut MaybeUninit<MapState>>,
) -> c_int {
    put(state, || Ok(given(map)?.map.info()?))
}

/// Queries the state of the map of this name, which is not opened for it. The scope has the meaning of `scope` in struct sluice_channel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_map_query(
    name: *const c_char,
    scope: *const c_char,
    state: Option<&mut MaybeUninit<MapState>>,
) -> c_int {
    put(state, || {
        // SAFETY: the conventions.
        Ok(unsafe { in_scope(SluiceMap::named(text(name)?), scope) }?.info()?)
    })
}

/// Closes and frees the map. Its iterations and its watcher remain.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_map_close(map: Option<Box<Map>>) {
    drop(map);
}
