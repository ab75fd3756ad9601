// SPDX-License-Identifier: MIT OR Apache-2.0
//! What writers change: a durable map.

use std::time::Duration;

use anyhow::{Context, Result};
use nix::errno::Errno;
use sluice::Map;
use sluice::map::{Durability, SyncError, WriteError};

use crate::history::Outcome;
use crate::store::{Contents, Entry};
use crate::workload::{Change, Operation};

/// Of the kernel's copy of a map, in bytes.
const CAPACITY: u64 = 64 << 20;

/// An open map.
pub struct DurableMap {
    map: Map,
    /// Whether a change waits until it is stored.
    waits: bool,
}

impl DurableMap {
    /// Creates it, has it restored, or finds it in the kernel. With an interval, changes do not wait until they are stored.
    pub fn open(name: &str, interval: Option<Duration>, deadline: Duration) -> Result<DurableMap> {
        let durability = match interval {
            None => Durability::always(),
            Some(interval) => Durability::interval(interval),
        };
        let map = Map::named(name)
            .create(true)
            .capacity(CAPACITY)
            .durable(durability.deadline(deadline))
            .open();
        let map = map.with_context(|| format!("cannot open the durable map {name}"))?;
        let waits = interval.is_none();
        Ok(DurableMap { map, waits })
    }

    pub fn apply(&self, operation: &Operation) -> Result<Outcome> {
        let made = match &operation.change {
            Change::Set(value) => self
                .map
                .set(&operation.key, value)
                .map(|set| Some(set.version)),
            Change::Delete => self.map.delete(&operation.key),
        };
        match made {
            Ok(Some(number)) if self.waits => Ok(Outcome::Stored(number)),
            Ok(Some(number)) => Ok(Outcome::Made(number)),
            Ok(None) => Ok(Outcome::Refused(Errno::ENOENT)),
            Err(error) => failure(error),
        }
    }

    /// The number up to which changes are stored; none if they did not become so in time.
    pub fn sync(&self) -> Result<Option<u64>> {
        match self.map.sync() {
            Ok(number) => Ok(Some(number)),
            Err(SyncError::TimedOut) => Ok(None),
            Err(error) => Err(error).context("cannot synchronize the map"),
        }
    }
}

fn failure(error: WriteError) -> Result<Outcome> {
    match error {
        WriteError::Unacknowledged { number } => Ok(Outcome::Made(number)),
        WriteError::Refused => Ok(Outcome::Refused(Errno::EAGAIN)),
        WriteError::Full => Ok(Outcome::Refused(Errno::ENOSPC)),
        WriteError::Store(error) => Ok(Outcome::Refused(Errno::from_raw(error.errno()))),
        error => Err(error).context("a change failed in an unexpected way"),
    }
}

/// The contents of the kernel's copy of a map, which is restored if necessary, and which nothing changes meanwhile.
pub fn read(name: &str) -> Result<Contents> {
    let DurableMap { map, .. } = DurableMap::open(name, None, Duration::from_secs(30))?;
    let entries = map.entries().map(|entry| {
        let (key, entry) = entry?;
        Ok(Entry {
            key,
            value: entry.value,
            version: entry.version,
        })
    });
    let entries = entries.collect::<Result<_>>()?;
    Ok(Contents {
        applied: map.info()?.sequence,
        // The kernel does not tell.
        reserved: u64::MAX,
        entries,
    })
}
