// SPDX-License-Identifier: MIT OR Apache-2.0

use std::time::Duration;

use sluice::Name;
use sluice_abi::{keeper, map};

/// The time between two commits of a map with the flag INTERVAL, if the map does not say otherwise.
pub const COMMIT_INTERVAL: Duration = Duration::from_secs(1);

/// A durable map: all that is stored of it but for its entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredMap {
    pub name: Name,
    /// SLUICE_MAP_DURABLE, with _INTERVAL, _REFUSE and _MAPPED if they apply. Flags that this library does not know are kept.
    pub flags: u32,
    /// The owner, in the initial user namespace.
    pub uid: u32,
    /// The group, in the initial user namespace.
    pub gid: u32,
    /// Permission bits.
    pub mode: u32,
    /// Bytes.
    pub capacity: u64,
    /// The most entries that it may have; 0: no limit but the bytes.
    pub entries: u64,
    /// Changes that are kept for watchers, a power of two; 0: the default.
    pub events: u32,
    /// The limit of each wait for the store, in milliseconds; 0: the default.
    pub deadline_ms: u32,
    /// The time between two commits, in milliseconds; 0: the default. Only with the flag INTERVAL.
    pub interval_ms: u32,
    /// Bytes of a cell of the table of a mapped map; 0: the default. Only with the flag MAPPED.
    pub cell: u32,
    /// Bytes of the table of a mapped map, otherwise 0.
    pub table: u64,
}

impl StoredMap {
    /// The time in which changes are stored. None: at once, because their callers wait for it.
    pub fn interval(&self) -> Option<Duration> {
        match (self.flags & map::INTERVAL, self.interval_ms) {
            (0, _) => None,
            (_, 0) => Some(COMMIT_INTERVAL),
            (_, milliseconds) => Some(Duration::from_millis(milliseconds.into())),
        }
    }

    /// None if the name is invalid.
    pub(crate) fn from_abi(map: &keeper::Map) -> Option<Self> {
        Some(Self {
            name: Name::new(map.name()).ok()?,
            flags: map.flags,
            uid: map.uid,
            gid: map.gid,
            mode: map.mode,
            capacity: map.capacity,
            entries: map.entries,
            events: map.events,
            deadline_ms: map.deadline_ms,
            interval_ms: map.interval_ms,
            cell: map.cell,
            table: map.table,
        })
    }

    pub(crate) fn to_abi(&self) -> keeper::Map {
        keeper::Map {
            uid: self.uid,
            gid: self.gid,
            mode: self.mode,
            capacity: self.capacity,
            entries: self.entries,
            events: self.events,
            deadline_ms: self.deadline_ms,
            interval_ms: self.interval_ms,
            cell: self.cell,
            table: self.table,
            ..keeper::Map::new(self.name.as_bytes(), self.flags)
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub fn example() -> StoredMap {
        StoredMap {
            name: Name::new("sessions").unwrap(),
            flags: map::DURABLE | map::INTERVAL | map::MAPPED,
            uid: 1000,
            gid: 100,
            mode: 0o640,
            capacity: 4 << 20,
            entries: 7,
            events: 1024,
            deadline_ms: 30_000,
            interval_ms: 200,
            cell: 256,
            table: 1 << 20,
        }
    }

    #[test]
    fn a_map_is_the_same_in_a_message_and_in_a_call() {
        let map = example();
        let abi = map.to_abi();
        assert_eq!((abi.open_flags, abi.administrator), (0, 0));
        assert_eq!(StoredMap::from_abi(&abi), Some(map));
    }

    #[test]
    fn a_name_is_checked() {
        let abi = example().to_abi();
        for name in [[0; 64], [b'x'; 64]] {
            assert_eq!(StoredMap::from_abi(&keeper::Map { name, ..abi }), None);
        }
    }

    #[test]
    fn only_a_map_with_the_flag_has_an_interval() {
        let map = example();
        assert_eq!(map.interval(), Some(Duration::from_millis(200)));
        let unset = StoredMap {
            interval_ms: 0,
            ..map.clone()
        };
        assert_eq!(unset.interval(), Some(COMMIT_INTERVAL));
        let always = StoredMap {
            flags: map::DURABLE,
            ..map
        };
        assert_eq!(always.interval(), None);
    }
}
