// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use sluice_abi as abi;

use super::batch::{self, Batch};
use super::calls;
use super::dump::{Entries, Keys};
use super::entry::{DeleteOptions, Entry, EntryInfo, Set, SetOptions, time_to_live};
use super::error::{OpenError, ReadError, SyncError, WatchError, WriteError};
use super::info::{self, MapInfo};
use super::mapped::MappedMap;
use super::watcher::{WatchFrom, Watcher};
use crate::error::{Error, Result};
use crate::store_error::StoreError;
use crate::sys::{ioctl, query};

/// Values of up to this length need no second call.
const FIRST_ROOM: usize = 1024;

/// An open map. Several threads may use it at the same time.
///
/// A get, a set or a delete takes effect at one moment between its begin and its end, in one order for all processes.
#[derive(Debug)]
pub struct Map {
    endpoint: OwnedFd,
    /// Whether there is a watcher, with a duplicate of the descriptor.
    watched: Arc<AtomicBool>,
    /// Whether changes wait until they are stored, unless they say otherwise.
    waits: bool,
}

impl Map {
    pub(super) fn new(endpoint: OwnedFd) -> Self {
        let info = query(endpoint.as_fd());
        Self {
            waits: info.is_ok_and(|info| info::waits(&info)),
            endpoint,
            watched: Arc::default(),
        }
    }

    /// Uses an endpoint that was inherited or received.
    pub fn attach(endpoint: OwnedFd) -> std::result::Result<Self, OpenError> {
        query::<abi::map::Info>(endpoint.as_fd()).map_err(OpenError::of_query)?;
        Ok(Self::new(endpoint))
    }

    /// Returns the entry of `key`, if there is one.
    pub fn get(&self, key: impl AsRef<[u8]>) -> std::result::Result<Option<Entry>, ReadError> {
        let key = key.as_ref();
        let mut first = [0; FIRST_ROOM];
        let mut needed = match self.get_into(key, &mut first) {
            Err(ReadError::BufferTooSmall { len, .. }) => len,
            other => return Ok(other?.map(|info| entry(&first, info))),
        };
        loop {
            let mut room = vec![0; needed];
            match self.get_into(key, &mut room) {
                // It has grown since.
                Err(ReadError::BufferTooSmall { len, .. }) => needed = len,
                other => return Ok(other?.map(|info| entry(&room, info))),
            }
        }
    }

    /// Copies the value of `key` to `into`, and returns its length, if there is an entry. A value longer than `into` is not copied:
    /// [`ReadError::BufferTooSmall`].
    pub fn get_into(
        &self,
        key: impl AsRef<[u8]>,
        into: &mut [u8],
    ) -> std::result::Result<Option<EntryInfo>, ReadError> {
        let (key, room) = (key.as_ref(), into.len());
        ReadError::check_key(key)?;
        let (op, called) = calls::get(self.as_fd(), key, into);
        let len = op.value_length as usize;
        match called {
            Ok(()) if len <= room => Ok(Some(EntryInfo {
                len,
                version: op.version,
                time_to_live: time_to_live(op.ttl_ns),
            })),
            Ok(()) => Err(ReadError::InvalidEntry { len }),
            Err(error) => match error.raw_os_error() {
                Some(libc::ENOENT) => Ok(None),
                Some(libc::EMSGSIZE) => Err(ReadError::BufferTooSmall { len, room }),
                _ => Err(ReadError::new(error)),
            },
        }
    }

    /// Sets the value of `key`, without a time to live.
    pub fn set(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> std::result::Result<Set, WriteError> {
        self.set_with(key, value, SetOptions::new())
    }

    /// Sets the value of `key` if its entry has this version; with version 0, creates the entry. Otherwise fails with
    /// [`WriteError::VersionMismatch`], [`WriteError::AlreadyExists`] or [`WriteError::NotFound`].
    pub fn compare_and_set(
        &self,
        key: impl AsRef<[u8]>,
        version: u64,
        value: impl AsRef<[u8]>,
    ) -> std::result::Result<Set, WriteError> {
        self.set_with(key, value, SetOptions::new().if_version(version))
    }

    /// Sets the value of `key`, with options.
    pub fn set_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: SetOptions,
    ) -> std::result::Result<Set, WriteError> {
        let (key, value) = (key.as_ref(), value.as_ref());
        WriteError::check_key(key)?;
        WriteError::check_value(value)?;
        if self.waits && options.change.waits() {
            return batch::set_and_wait(self, key, value, options);
        }
        let (op, called) = calls::set(self.as_fd(), key, value, options);
        set(called, options, op.version).map_err(|error| self.explain(error))
    }

    /// Deletes the entry of `key`, and returns the number of that change, if there was an entry.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> std::result::Result<Option<u64>, WriteError> {
        self.delete_with(key, DeleteOptions::new())
    }

    /// Deletes the entry of `key` if it has this version, otherwise fails with [`WriteError::VersionMismatch`]. Returns the number of that
    /// change, or none if there is no entry.
    pub fn delete_if_version(
        &self,
        key: impl AsRef<[u8]>,
        version: u64,
    ) -> std::result::Result<Option<u64>, WriteError> {
        self.delete_with(key, DeleteOptions::new().if_version(version))
    }

    /// Deletes the entry of `key`, with options. Returns the number of that change, or none if there is no entry.
    pub fn delete_with(
        &self,
        key: impl AsRef<[u8]>,
        options: DeleteOptions,
    ) -> std::result::Result<Option<u64>, WriteError> {
        let key = key.as_ref();
        WriteError::check_key(key)?;
        if self.waits && options.change.waits() {
            return batch::delete_and_wait(self, key, options);
        }
        let (op, called) = calls::delete(self.as_fd(), key, options);
        deleted(called, options, op.version).map_err(|error| self.explain(error))
    }

    /// Waits until all changes of a durable map so far are stored, those of other processes included, up to the deadline of the map.
    /// Returns the number up to which they are.
    ///
    /// In an asynchronous program call it in a thread for blocking calls, or wait until the [descriptor](Self::as_fd) of a writer reports
    /// POLLPRI.
    pub fn sync(&self) -> std::result::Result<u64, SyncError> {
        self.sync_setting(abi::map::NOW)
    }

    /// Waits until all changes of a durable map up to `number` are stored, such as the version of a [set](Map::set_with) that did not
    /// wait. Returns the number up to which they are. Fails with [`SyncError::NoSuchChange`] if there is no such change yet.
    pub fn sync_to(&self, number: u64) -> std::result::Result<u64, SyncError> {
        match number {
            abi::map::NOW => Err(SyncError::NoSuchChange { number }),
            _ => self.sync_setting(number),
        }
    }

    fn sync_setting(&self, number: u64) -> std::result::Result<u64, SyncError> {
        let mut setting = abi::Setting::new(number);
        match ioctl(self.as_fd(), abi::map::SYNC, &mut setting) {
            Ok(_) => Ok(setting.value),
            Err(error) => Err(SyncError::new(error, number)),
        }
    }

    /// ENOSPC is a limit of the map, or the error of the store of a durable one.
    pub(super) fn explain(&self, error: WriteError) -> WriteError {
        let is_of_store = |info: MapInfo| {
            let error = info.durable.and_then(|durable| durable.store_error);
            error == Some(StoreError::Full)
        };
        match error {
            WriteError::Full if self.info().is_ok_and(is_of_store) => {
                WriteError::Store(StoreError::Full)
            }
            other => other,
        }
    }

    /// A batch of operations, to be executed with one system call.
    pub fn batch(&self) -> Batch<'_> {
        Batch::new(self)
    }

    /// All entries, in no order. Each that exists during the whole iteration is returned once, one that is created meanwhile not at
    /// all, one that is deleted meanwhile once or not at all.
    pub fn entries(&self) -> Entries<'_> {
        Entries::new(self)
    }

    /// All keys, as [`entries`](Self::entries), without the values.
    pub fn keys(&self) -> Keys<'_> {
        Keys::new(self)
    }

    /// Maps the table of the map, to look up entries without a system call. The map must be open for reading, and created with
    /// [`mapped`](super::Options::mapped), otherwise this fails with [`OpenError::NotMapped`]. Map a table once and keep the result: mapping
    /// takes several system calls, and the first accesses to the table take a page fault for each 128 pages.
    pub fn mapped(&self) -> std::result::Result<MappedMap, OpenError> {
        MappedMap::new(self)
    }

    /// Watches the map. An endpoint has one position in the sequence of changes, hence one watcher at a time.
    pub fn watch(&self, from: WatchFrom) -> std::result::Result<Watcher, WatchError> {
        Watcher::new(self.as_fd(), &self.watched, from)
    }

    /// The state of the map and of this endpoint.
    pub fn info(&self) -> Result<MapInfo> {
        query::<abi::map::Info>(self.as_fd())
            .map(MapInfo::from)
            .map_err(|error| Error::io("querying the map", error))
    }
}

fn entry(room: &[u8], info: EntryInfo) -> Entry {
    Entry {
        value: room[..info.len].to_vec(),
        version: info.version,
        time_to_live: info.time_to_live,
    }
}

/// The result of a set, which returns whether it created the entry.
pub(super) fn set(
    called: io::Result<bool>,
    options: SetOptions,
    version: u64,
) -> std::result::Result<Set, WriteError> {
    match called {
        Ok(created) => Ok(Set { created, version }),
        Err(error) => Err(WriteError::new(error, options.change.required(), version)),
    }
}

/// The result of a delete.
pub(super) fn deleted(
    called: io::Result<()>,
    options: DeleteOptions,
    version: u64,
) -> std::result::Result<Option<u64>, WriteError> {
    match called {
        Ok(()) => Ok(Some(version)),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(error) => Err(WriteError::new(error, options.change.required(), version)),
    }
}

impl AsFd for Map {
    /// The endpoint. That of a writer of a durable map reports POLLOUT when a change would be admitted or fail at once, and POLLPRI when
    /// all changes that were made through it are stored, and there is one.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.endpoint.as_fd()
    }
}

impl AsRawFd for Map {
    fn as_raw_fd(&self) -> RawFd {
        self.endpoint.as_raw_fd()
    }
}

impl From<Map> for OwnedFd {
    fn from(map: Map) -> Self {
        map.endpoint
    }
}
