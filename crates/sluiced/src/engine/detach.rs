// SPDX-License-Identifier: MIT OR Apache-2.0
//! Detaching: the kernel drops its copy of a map once all changes are acknowledged. If new ones prevent that, they are refused
//! until it is done.

use std::time::Duration;

use nix::errno::Errno;

use super::Engine;
use super::stream::Phase;
use super::tasks::Task;
use crate::cgroup::Cgroups;
use crate::kernel::Kernel;
use crate::store::{MapId, Store};

const RETRY: Duration = Duration::from_millis(2);
const LIMIT: Duration = Duration::from_secs(10);

/// The state of a detach.
#[derive(Clone, Copy)]
pub struct Detach {
    since: Duration,
    /// The next attempt, after one that failed.
    retry_at: Option<Duration>,
}

impl<K: Kernel, S: Store, C: Cgroups> Engine<K, S, C> {
    /// The mark in the store precedes, so that a crash does not leave a map that the next start attaches.
    pub(super) fn begin_detach(&mut self, stream: u64) {
        let detach = Detach {
            since: self.now.monotonic,
            retry_at: None,
        };
        self.detaching.insert(stream, detach);
    }

    pub(super) fn detach_retry(&self) -> Option<Duration> {
        let retries = self.detaching.values().filter_map(|detach| detach.retry_at);
        retries.min()
    }

    pub(super) fn advance_detaches(&mut self) {
        if self.failure.is_some() || self.detaching.is_empty() {
            return;
        }
        for (stream, detach) in self.detaching.clone() {
            if let Some(map) = self.detachable(stream) {
                self.try_detach(stream, map, detach);
            }
        }
    }

    /// The map, if all changes that were read are stored, and the mark, too.
    fn detachable(&mut self, id: u64) -> Option<MapId> {
        let stream = self.streams.get_mut(&id)?;
        if !stream.pending.is_empty() {
            stream.make_due(self.now.monotonic);
            return None;
        }
        let entry = self.catalogue.get(stream.map?)?;
        let is_marked = entry.map.detached && !entry.busy;
        (is_marked && stream.phase == Phase::Live).then_some(entry.map.id)
    }

    fn try_detach(&mut self, stream: u64, map: MapId, detach: Detach) {
        match self.kernel.detach(stream) {
            Ok(()) | Err(Errno::ENOENT) => self.close_stream(stream),
            Err(_) if self.now.monotonic > detach.since + LIMIT => self.give_up(stream, map),
            Err(_) => {
                self.set_stream_error(stream, Some(Errno::EROFS));
                let retry_at = Some(self.now.monotonic + RETRY);
                let detach = Detach { retry_at, ..detach };
                if self.streams.contains_key(&stream) {
                    self.detaching.insert(stream, detach);
                }
            }
        }
    }

    /// The map stays as it was.
    fn give_up(&mut self, stream: u64, map: MapId) {
        self.detaching.remove(&stream);
        self.set_stream_error(stream, None);
        self.catalogue.set_busy(map, true);
        self.tasks.push(Task::Detached {
            map,
            detached: false,
        });
    }
}
