// SPDX-License-Identifier: MIT OR Apache-2.0
//! The map of a rule.

use std::sync::Arc;
use std::time::Duration;

use sluice::Map;
use sluice::map::{
    AsyncWatcher, Change, DeleteOptions, MapInfo, ReadError, SetOptions, WatchError, WatchFrom,
    WriteError,
};
use tokio::sync::{Mutex, MutexGuard};
use tokio::task::spawn_blocking;

use crate::engine::bucket::Content;

#[derive(Clone, Debug)]
pub struct Entry {
    pub version: u64,
    pub content: Content,
}

/// A change of the map.
#[derive(Clone, Debug)]
pub struct Event {
    pub key: Vec<u8>,
    pub version: u64,
    pub is_expiry: bool,
    /// Changes before it were lost.
    pub is_after_loss: bool,
}

/// Why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapError {
    /// The map has ended.
    Ended,
    /// The entry has not the required version.
    Conflict,
    /// No map takes such a value.
    TooLong(String),
    /// Another attempt may succeed.
    Other(String),
}

pub trait LocalMap {
    fn get(&self, key: &[u8]) -> Result<Option<Entry>, MapError>;

    /// Whether there is an entry.
    fn contains(&self, key: &[u8]) -> Result<bool, MapError>;

    /// Returns the new version. `required`: the version of the entry; 0: none.
    async fn set(
        &self,
        key: &[u8],
        content: &Content,
        required: Option<u64>,
    ) -> Result<u64, MapError>;

    async fn delete(&self, key: &[u8], required: Option<u64>) -> Result<(), MapError>;

    /// The keys with the versions of their entries.
    fn keys(&self) -> impl Iterator<Item = Result<(Vec<u8>, u64), MapError>>;

    /// From now on there are events.
    async fn watch(&self) -> Result<(), MapError>;

    /// Cancel safe.
    async fn event(&self) -> Result<Event, MapError>;
}

/// A map of the module.
pub struct KernelMap {
    map: Arc<Map>,
    watcher: Mutex<Option<AsyncWatcher>>,
}

impl KernelMap {
    pub fn new(map: Map) -> Self {
        Self {
            map: Arc::new(map),
            watcher: Mutex::default(),
        }
    }

    pub fn info(&self) -> sluice::Result<MapInfo> {
        self.map.info()
    }

    /// A change may wait for memory, in a thread of its own.
    async fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&Map) -> Result<T, WriteError> + Send + 'static,
    ) -> Result<T, MapError> {
        let map = Arc::clone(&self.map);
        match spawn_blocking(move || change(&map)).await {
            Ok(changed) => changed.map_err(MapError::from),
            Err(error) => Err(MapError::Other(error.to_string())),
        }
    }

    async fn watcher(&self) -> MutexGuard<'_, Option<AsyncWatcher>> {
        self.watcher.lock().await
    }
}

impl LocalMap for KernelMap {
    fn get(&self, key: &[u8]) -> Result<Option<Entry>, MapError> {
        let entry = self.map.get(key)?;
        Ok(entry.map(|entry| Entry {
            version: entry.version,
            content: Content {
                value: entry.value.into(),
                time_to_live: entry.time_to_live,
            },
        }))
    }

    fn contains(&self, key: &[u8]) -> Result<bool, MapError> {
        match self.map.get_into(key, &mut []) {
            Ok(entry) => Ok(entry.is_some()),
            Err(ReadError::BufferTooSmall { .. }) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    async fn set(
        &self,
        key: &[u8],
        content: &Content,
        required: Option<u64>,
    ) -> Result<u64, MapError> {
        let mut options = SetOptions::new().nowait(true);
        if let Some(time) = content.time_to_live {
            options = options.time_to_live(time);
        }
        if let Some(version) = required {
            options = options.if_version(version);
        }
        let (key, value) = (key.to_vec(), content.value.clone());
        let set = self.change(move |map| map.set_with(&key, &value, options));
        Ok(set.await?.version)
    }

    async fn delete(&self, key: &[u8], required: Option<u64>) -> Result<(), MapError> {
        let mut options = DeleteOptions::new().nowait(true);
        if let Some(version) = required {
            options = options.if_version(version);
        }
        let key = key.to_vec();
        let deleted = self.change(move |map| map.delete_with(&key, options));
        deleted.await.map(drop)
    }

    fn keys(&self) -> impl Iterator<Item = Result<(Vec<u8>, u64), MapError>> {
        let keys = self.map.keys();
        keys.map(|key| {
            key.map(|(key, info)| (key, info.version))
                .map_err(MapError::from)
        })
    }

    async fn watch(&self) -> Result<(), MapError> {
        let mut watcher = self.watcher().await;
        // An endpoint has one.
        *watcher = None;
        let watch = self.map.watch(WatchFrom::Now)?;
        *watcher = Some(AsyncWatcher::new(watch)?);
        Ok(())
    }

    async fn event(&self) -> Result<Event, MapError> {
        let mut watcher = self.watcher().await;
        let Some(watcher) = watcher.as_mut() else {
            return std::future::pending().await;
        };
        let event = watcher.recv().await?;
        Ok(Event {
            is_expiry: event.change == Change::Expired,
            is_after_loss: event.missed > 0,
            version: event.version,
            key: event.key,
        })
    }
}

impl From<ReadError> for MapError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Destroyed => Self::Ended,
            error => Self::Other(sluice::explain(&error)),
        }
    }
}

impl From<WatchError> for MapError {
    fn from(error: WatchError) -> Self {
        match error {
            WatchError::Destroyed => Self::Ended,
            error => Self::Other(sluice::explain(&error)),
        }
    }
}

impl From<WriteError> for MapError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Destroyed | WriteError::Removed => Self::Ended,
            error if error.is_conflict() => Self::Conflict,
            error @ WriteError::ValueTooLong { .. } => Self::TooLong(sluice::explain(&error)),
            error => Self::Other(sluice::explain(&error)),
        }
    }
}

/// Two reads of a time to live that differ less are the same: clocks differ, and a bucket has whole seconds.
const TOLERANCE: Duration = Duration::from_secs(2);

/// Whether both sides have the same.
pub fn is_same(one: &Content, other: &Content) -> bool {
    let times = match (one.time_to_live, other.time_to_live) {
        (Some(one), Some(other)) => one.abs_diff(other) < TOLERANCE,
        (None, None) => true,
        _ => false,
    };
    times && one.value == other.value
}

#[cfg(test)]
pub mod tests;
