// SPDX-License-Identifier: MIT OR Apache-2.0
use sluice_abi::map::INTERVAL;
use sluiced_protocol::{MapName, MapState, MapStatus, Status, SyncMode};

use super::Engine;
use super::catalogue::Entry;
use super::failure::Failure;
use super::stream::{Phase, Stream, interval};
use crate::cgroup::Cgroups;
use crate::kernel::Kernel;
use crate::store::{Params, Store};

impl<K: Kernel, S: Store, C: Cgroups> Engine<K, S, C> {
    pub(super) fn status(&self) -> Status {
        let stored = self.catalogue.iter().map(|entry| self.map_status(entry));
        let lost = self.streams.values().filter_map(lost_status);
        Status {
            error: self
                .failure
                .as_ref()
                .map(|failure| failure.text().to_owned()),
            maps: stored.chain(lost).collect(),
        }
    }

    fn map_status(&self, entry: &Entry) -> MapStatus {
        let map = &entry.map;
        let stream = entry.stream.and_then(|stream| self.streams.get(&stream));
        let (state, reason) = state(entry, stream, self.failure.as_ref());
        MapStatus {
            state,
            reason,
            entries: map.usage.entries,
            bytes: map.usage.bytes,
            stored: map.applied,
            ..unstored(map.map_name(), &map.params)
        }
    }
}

/// Of a map that the store does not have, although the kernel has a copy of it.
fn lost_status(stream: &Stream) -> Option<MapStatus> {
    match (&stream.phase, stream.map) {
        (Phase::Lost(text), None) => Some(MapStatus {
            reason: Some(text.clone()),
            ..unstored(stream.name.clone(), &stream.params)
        }),
        _ => None,
    }
}

fn unstored(map: MapName, params: &Params) -> MapStatus {
    MapStatus {
        map,
        uid: params.uid,
        gid: params.gid,
        state: MapState::Error,
        reason: None,
        entries: 0,
        bytes: 0,
        stored: 0,
        sync: match params.flags & INTERVAL {
            0 => SyncMode::Always,
            _ => SyncMode::Interval,
        },
        interval_ms: interval(params)
            .map(|time| u32::try_from(time.as_millis()).unwrap_or(u32::MAX)),
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
