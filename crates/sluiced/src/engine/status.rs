// SPDX-License-Identifier: MIT OR Apache-2.0
use std::collections::HashMap;

use sluice_abi::map::INTERVAL;
use sluiced_protocol::{MapState, MapStatus, Status, SyncMode};

use super::Engine;
use super::catalogue::Entry;
use super::failure::Failure;
use super::stream::{Phase, Stream, interval};
use crate::cgroup::Cgroups;
use crate::kernel::Kernel;
use crate::store::{MapId, Store, Usage};

impl<K: Kernel, S: Store, C: Cgroups> Engine<K, S, C> {
    pub(super) fn status(&mut self) -> Status {
        let usage = self.usage();
        let entries = self.catalogue.iter();
        Status {
            error: self
                .failure
                .as_ref()
                .map(|failure| failure.text().to_owned()),
            maps: entries
                .map(|entry| self.map_status(entry, &usage))
                .collect(),
        }
    }

    /// That of the last commit, or an older one if the store does not work.
    fn usage(&mut self) -> HashMap<MapId, Usage> {
        let maps = match self.failure {
            None => self.store.maps().unwrap_or_default(),
            Some(_) => Vec::new(),
        };
        maps.into_iter().map(|map| (map.id, map.usage)).collect()
    }

    fn map_status(&self, entry: &Entry, usage: &HashMap<MapId, Usage>) -> MapStatus {
        let map = &entry.map;
        let usage = usage.get(&map.id).unwrap_or(&map.usage);
        let stream = entry.stream.and_then(|stream| self.streams.get(&stream));
        let (state, reason) = state(entry, stream, self.failure.as_ref());
        let params = &map.params;
        MapStatus {
            map: map.map_name(),
            uid: params.uid,
            gid: params.gid,
            state,
            reason,
            entries: usage.entries,
            bytes: usage.bytes,
            stored: map.applied,
            sync: match params.flags & INTERVAL {
                0 => SyncMode::Always,
                _ => SyncMode::Interval,
            },
            interval_ms: interval(params)
                .map(|time| u32::try_from(time.as_millis()).unwrap_or(u32::MAX)),
        }
    }
}

fn state(
    entry: &Entry,
    stream: Option<&Stream>,
    failure: Option<&Failure>,
) -> (MapState, Option<String>) {
    match stream.map(|stream| &stream.phase) {
        Some(Phase::Lost(text)) => return (MapState::Error, Some(text.clone())),
        Some(Phase::Restoring) => return (MapState::Restoring, None),
        Some(Phase::Live) => {
            let reason = failure.map(|failure| failure.text().to_owned());
            return (MapState::Attached, reason);
        }
        None => {}
    }
    match (&entry.problem, entry.map.orphaned, entry.map.detached) {
        (_, Some(_), _) => (MapState::Orphan, None),
        (_, _, true) => (MapState::Detached, None),
        (Some(problem), ..) => (problem.state, Some(problem.text.clone())),
        _ => (MapState::Stored, None),
    }
}
