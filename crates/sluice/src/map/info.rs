// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io;
use std::os::fd::BorrowedFd;

use sluice_abi::map;

use crate::control::ioctl;

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
        }
    }
}

pub(super) fn query(endpoint: BorrowedFd<'_>) -> io::Result<map::Info> {
    let mut info = map::Info::default();
    ioctl(endpoint, map::INFO, &mut info)?;
    Ok(info)
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
}
