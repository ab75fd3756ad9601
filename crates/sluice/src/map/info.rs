// SPDX-License-Identifier: MIT OR Apache-2.0

use std::time::Duration;

use sluice_abi::map;

use crate::store_error::StoreError;

/// The state of a map, and of the queried endpoint. The counts are totals since the map was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MapInfo {
    /// Bytes.
    pub capacity: u64,
    /// Bytes in use: keys, values, and the memory that entries need beside them.
    pub bytes: u64,
    /// The most entries that it may have, if they are limited.
    pub entries_max: Option<u64>,
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
    /// The sequence of the last event that this endpoint has read; its watcher may not have returned it yet. 0 without an endpoint.
    pub watched: u64,
    /// What a durable map has beyond that. None: the map is volatile.
    pub durable: Option<DurableInfo>,
    /// The table that readers map. None: the map has none.
    pub table: Option<TableInfo>,
}

/// The mapped table of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableInfo {
    /// The size of the table in bytes.
    pub bytes: u64,
    /// The size of a cell in bytes, for an entry and 32 bytes of overhead.
    pub cell: u32,
}

impl TableInfo {
    fn new(info: &map::Info) -> Self {
        Self {
            bytes: info.table,
            cell: info.cell,
        }
    }
}

/// The state of a durable map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DurableInfo {
    /// The time between two commits of changes that do not wait until they are stored. None: each change waits.
    pub interval: Option<Duration>,
    /// The limit of each wait for the store.
    pub deadline: Duration,
    /// Whether a change that would wait for room is refused instead.
    pub refuse: bool,
    /// All changes up to this number are stored.
    pub stored: u64,
    /// Bytes of changes that are not stored yet.
    pub pending: u64,
    /// Why the store takes no changes. None: it works, or there is no daemon.
    pub store_error: Option<StoreError>,
}

impl DurableInfo {
    fn new(info: &map::Info) -> Self {
        let milliseconds = |time: u32| Duration::from_millis(time.into());
        let is_interval = info.flags & map::INTERVAL != 0;
        Self {
            interval: is_interval.then(|| milliseconds(info.interval_ms)),
            deadline: milliseconds(info.deadline_ms),
            refuse: info.flags & map::REFUSE != 0,
            stored: info.stored,
            pending: info.pending,
            store_error: StoreError::from_errno(info.error as i32),
        }
    }
}

impl From<map::Info> for MapInfo {
    fn from(info: map::Info) -> Self {
        Self {
            capacity: info.capacity,
            bytes: info.bytes,
            entries_max: (info.entries_max != 0).then_some(info.entries_max),
            entries: info.entries,
            sequence: info.sequence,
            expired: info.expired,
            missed: info.missed,
            events: info.events,
            watchers: info.watchers,
            watched: info.watched,
            durable: (info.flags & map::DURABLE != 0).then(|| DurableInfo::new(&info)),
            table: (info.flags & map::MAPPED != 0).then(|| TableInfo::new(&info)),
        }
    }
}

/// Whether it is a durable map whose changes wait until they are stored.
pub(super) fn waits(info: &map::Info) -> bool {
    info.flags & (map::DURABLE | map::INTERVAL) == map::DURABLE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_zero_is_none() {
        let info = MapInfo::from(map::Info::default());
        assert_eq!(info.entries_max, None);
        let info = MapInfo::from(map::Info {
            entries_max: 7,
            ..map::Info::default()
        });
        assert_eq!(info.entries_max, Some(7));
    }

    #[test]
    fn only_a_durable_map_has_the_state_of_one() {
        let info = map::Info {
            flags: map::DURABLE,
            stored: 8,
            pending: 96,
            deadline_ms: 500,
            interval_ms: 7,
            ..map::Info::default()
        };
        let durable = |info| MapInfo::from(info).durable;
        assert_eq!(durable(map::Info { flags: 0, ..info }), None);
        let always = DurableInfo {
            interval: None,
            deadline: Duration::from_millis(500),
            refuse: false,
            stored: 8,
            pending: 96,
            store_error: None,
        };
        assert_eq!(durable(info), Some(always));
        assert!(waits(&info));
        assert!(!waits(&map::Info::default()));
        let other = map::Info {
            flags: map::DURABLE | map::INTERVAL | map::REFUSE,
            error: libc::EROFS as u32,
            ..info
        };
        let expected = DurableInfo {
            interval: Some(Duration::from_millis(7)),
            refuse: true,
            store_error: Some(StoreError::ReadOnly),
            ..always
        };
        assert_eq!(durable(other), Some(expected));
        assert!(!waits(&other));
    }
}
