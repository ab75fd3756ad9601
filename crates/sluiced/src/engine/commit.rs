// SPDX-License-Identifier: MIT OR Apache-2.0
//! One transaction for the changes of all maps, and then their acknowledgements.

use super::catalogue::Catalogue;
use super::stream::{Phase, Stream, interval};
use super::{EXPIRED_MAX, Engine, RESERVATION};
use crate::cgroup::Cgroups;
use crate::kernel::Kernel;
use crate::seeded::{self, Bug};
use crate::store::{MapId, Store, StoreError, StoredClock, UsageChanges, Write};

/// What a transaction stores of a stream beside its changes.
struct Progress {
    stream: u64,
    map: MapId,
    applied: u64,
    reserved: u64,
}

impl<K: Kernel, S: Store, C: Cgroups> Engine<K, S, C> {
    pub(super) fn is_commit_due(&self) -> bool {
        if let Some(failure) = &self.failure {
            return failure.retry_at() <= self.now.monotonic;
        }
        let is_due = |id| {
            let stream: Option<&Stream> = self.streams.get(id);
            let due = stream.and_then(|stream| stream.due);
            due.is_some_and(|due| due <= self.now.monotonic)
        };
        let is_enough = self.restorations.is_empty() || self.expired.len() >= EXPIRED_MAX;
        let expired = self.has_expired() && is_enough;
        expired || !self.tasks.is_empty() || self.dirty.iter().any(is_due)
    }

    /// Stores all changes that were read, also those that are not due, and all tasks.
    pub(super) fn commit(&mut self) {
        self.progressed = true;
        if self.failure.is_some() && !self.reopen() {
            return;
        }
        let progress = self.progress();
        let clock = self.clock.to_store(self.now);
        if seeded::is_on(Bug::EarlyAck) {
            self.acknowledge(&progress);
        }
        match self.store_all(&progress, clock.as_ref()) {
            Ok(usage) => {
                if clock.is_some() {
                    self.clock.set_stored(self.now);
                }
                self.recovered();
                // First, because processes wait for it.
                self.acknowledge(&progress);
                self.catalogue.change_usage(&usage);
                self.stored(&progress);
            }
            Err(error) => self.commit_failed(&error),
        }
    }

    /// Of the streams with changes; after a failure of all, so that each is told that the store works again.
    fn progress(&self) -> Vec<Progress> {
        let of = |id: &u64| {
            let stream = self.streams.get(id)?;
            progress_of(*id, stream, &self.catalogue)
        };
        match self.failure {
            None => self.dirty.iter().filter_map(of).collect(),
            Some(_) => self.streams.keys().filter_map(of).collect(),
        }
    }

    fn store_all(
        &mut self,
        progress: &[Progress],
        clock: Option<&StoredClock>,
    ) -> Result<UsageChanges, StoreError> {
        let mut writes: Vec<_> = clock.map(Write::Clock).into_iter().collect();
        for stored in progress {
            let stream = self.streams.get(&stored.stream);
            writes.extend(
                stream
                    .into_iter()
                    .flat_map(|stream| stream.pending.writes(stored.map)),
            );
            writes.push(Write::Progress {
                map: stored.map,
                applied: stored.applied,
                reserved: stored.reserved,
            });
        }
        let expired = self.expired.iter().filter(|_| self.clock.is_settled());
        writes.extend(expired.map(|entry| Write::Expire {
            map: entry.map,
            key: &entry.key,
            version: entry.version,
        }));
        for task in &self.tasks {
            task.write(&self.catalogue, &mut writes);
        }
        self.store.commit(&writes)
    }

    fn stored(&mut self, progress: &[Progress]) {
        if self.clock.is_settled() {
            self.expired.clear();
        }
        for stored in progress {
            if let Some(entry) = self.catalogue.get_mut(stored.map) {
                entry.map.applied = stored.applied;
                entry.map.reserved = stored.reserved;
            }
            if let Some(stream) = self.streams.get_mut(&stored.stream) {
                stream.pending.clear();
                stream.due = None;
            }
            self.dirty.remove(&stored.stream);
        }
        let tasks = std::mem::take(&mut self.tasks);
        self.tasks_stored(tasks);
    }

    fn acknowledge(&mut self, progress: &[Progress]) {
        for stored in progress {
            let Some(stream) = self.streams.get_mut(&stored.stream) else {
                continue;
            };
            // An earlier daemon may have stored changes that this one was not given yet.
            let sequence = stored.applied.min(stream.delivered);
            stream.acknowledged = sequence;
            stream.limit = stored.reserved;
            self.has_ended_waits |= interval(&stream.params).is_none();
            let error = stream.error;
            let result = self
                .kernel
                .acknowledge(stored.stream, sequence, stored.reserved, error);
            self.expect("the acknowledgement", stored.stream, result);
        }
    }
}

fn progress_of(id: u64, stream: &Stream, catalogue: &Catalogue) -> Option<Progress> {
    let map = &catalogue.get(stream.map?)?.map;
    if stream.phase != Phase::Live {
        return None;
    }
    let applied = map.applied.max(stream.delivered);
    let is_enough = map.reserved.saturating_sub(applied) >= RESERVATION / 2;
    let reserved = match is_enough {
        true => map.reserved,
        false => applied.saturating_add(RESERVATION),
    };
    Some(Progress {
        stream: id,
        map: map.id,
        applied,
        reserved,
    })
}
