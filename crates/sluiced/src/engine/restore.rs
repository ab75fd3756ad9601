// SPDX-License-Identifier: MIT OR Apache-2.0
//! Restorations: the stored entries of a map go to the kernel, some of them in each turn, so that the changes of other maps do not
//! wait. One that a process waits for precedes those of the start.

use std::collections::VecDeque;

use nix::errno::Errno;

use super::stream::Phase;
use super::tasks::{Target, problem_of};
use super::{EXPIRED_KEPT, Engine, Expired, PAGE, PAGES};
use crate::cgroup::Cgroups;
use crate::kernel::Kernel;
use crate::log;
use crate::store::{MapId, Store, StoredEntry};

struct Restoration {
    stream: u64,
    map: MapId,
    /// The key up to which it is restored.
    after: Option<Vec<u8>>,
}

#[derive(Default)]
pub struct Restorations {
    /// These take turns.
    urgent: VecDeque<Restoration>,
    /// One after the other.
    others: VecDeque<Restoration>,
}

impl Restorations {
    pub fn is_empty(&self) -> bool {
        self.urgent.is_empty() && self.others.is_empty()
    }

    pub fn add(&mut self, stream: u64, map: MapId, target: Target) {
        let restoration = Restoration {
            stream,
            map,
            after: None,
        };
        match target {
            Target::Open(_) => self.urgent.push_back(restoration),
            Target::Cgroup => self.others.push_back(restoration),
        }
    }

    pub fn remove(&mut self, stream: u64) {
        self.urgent.retain(|other| other.stream != stream);
        self.others.retain(|other| other.stream != stream);
    }

    /// A process waits for this one. Returns whether it is being restored.
    pub fn prioritize(&mut self, stream: u64) -> bool {
        let index = self.others.iter().position(|other| other.stream == stream);
        if let Some(restoration) = index.and_then(|index| self.others.remove(index)) {
            self.urgent.push_back(restoration);
        }
        self.urgent.iter().any(|other| other.stream == stream)
    }

    fn next(&mut self) -> Option<Restoration> {
        self.urgent.pop_front().or_else(|| self.others.pop_front())
    }

    fn put_back(&mut self, restoration: Restoration, was_urgent: bool) {
        match was_urgent {
            true => self.urgent.push_back(restoration),
            false => self.others.push_front(restoration),
        }
    }
}

impl<K: Kernel, S: Store, C: Cgroups> Engine<K, S, C> {
    /// Nothing can be read of a store that does not work.
    pub(super) fn restore_some(&mut self) {
        for _ in 0..PAGES {
            if self.failure.is_some() {
                return;
            }
            let was_urgent = !self.restorations.urgent.is_empty();
            let Some(restoration) = self.restorations.next() else {
                return;
            };
            if let Some(rest) = self.restore_page(restoration) {
                self.restorations.put_back(rest, was_urgent);
            }
        }
    }

    /// Returns what is left of it.
    fn restore_page(&mut self, mut restoration: Restoration) -> Option<Restoration> {
        let (stream, map) = (restoration.stream, restoration.map);
        let page = match self.store.page(map, restoration.after.as_deref(), PAGE) {
            Ok(page) => page,
            Err(error) => {
                log::line(format_args!("{error}"));
                self.restoration_failed(stream, map, Errno::EIO);
                return None;
            }
        };
        let Some(last) = page.last() else {
            self.complete(stream);
            return None;
        };
        restoration.after = Some(last.key.clone());
        let valid = self.without_expired(map, page);
        let valid: Vec<_> = valid
            .into_iter()
            .map(|entry| StoredEntry {
                expires_ns: self.clock.kernel_expiry(entry.expires_ns),
                ..entry
            })
            .collect();
        match self.kernel.restore(stream, &valid) {
            Ok(()) => Some(restoration),
            Err(errno) => {
                self.restoration_failed(stream, map, errno);
                None
            }
        }
    }

    /// The others are deleted with the next commit after the clock is settled.
    fn without_expired(&mut self, map: MapId, page: Vec<StoredEntry>) -> Vec<StoredEntry> {
        let now = self.clock.time(self.now);
        let is_valid = |entry: &StoredEntry| entry.expires_ns == 0 || entry.expires_ns > now;
        let (valid, expired): (Vec<_>, Vec<_>) = page.into_iter().partition(is_valid);
        if self.clock.is_settled() || self.expired.len() < EXPIRED_KEPT {
            let expired = expired.into_iter().map(|entry| Expired {
                map,
                key: entry.key,
                version: entry.version,
                expires_ns: entry.expires_ns,
            });
            self.expired.extend(expired);
        }
        valid
    }

    /// Unless the process that waits for the map has given up, which is no problem of the map.
    fn restoration_failed(&mut self, stream: u64, map: MapId, errno: Errno) {
        self.close_stream(stream);
        if self.refuse_open(stream, errno) {
            self.set_problem(map, problem_of(errno));
        }
    }

    /// All entries are in the kernel, and the map gets its name.
    pub(super) fn complete(&mut self, id: u64) {
        self.progressed = true;
        match self.kernel.ready(id) {
            Ok(()) => {
                if let Some(stream) = self.streams.get_mut(&id) {
                    stream.phase = Phase::Live;
                }
                self.tell_failure(id);
            }
            Err(Errno::EINVAL) => {
                if let Some(map) = self.map_of(id) {
                    self.restoration_failed(id, map, Errno::EINVAL);
                }
            }
            Err(errno) => self.not_named(id, errno),
        }
    }

    /// The stream has ended.
    fn not_named(&mut self, id: u64, errno: Errno) {
        let Some(map) = self.map_of(id) else { return };
        self.close_stream(id);
        match errno {
            Errno::ENOENT => self.remove_if_new(map),
            errno => self.set_problem(map, problem_of(errno)),
        }
    }

    /// A map that nobody has ever changed; openers that give up would otherwise fill the store.
    pub(super) fn remove_if_new(&mut self, map: MapId) {
        if self
            .catalogue
            .get(map)
            .is_some_and(|entry| entry.map.applied == 0)
        {
            self.remove_later(map);
        }
    }

    fn map_of(&self, stream: u64) -> Option<MapId> {
        self.streams.get(&stream).and_then(|stream| stream.map)
    }
}
