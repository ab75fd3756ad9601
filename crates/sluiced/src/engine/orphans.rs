// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stored maps whose cgroup was removed. They stay for a time, because the cgroup may be created again, as that of a container that
//! is restarted; their number, bytes and age are limited, and the oldest go first. One that is attached again is none any more.

use std::collections::BTreeSet;
use std::time::Duration;

use super::catalogue::Entry;
use super::tasks::Task;
use super::{Engine, Now};
use crate::cgroup::{CgroupError, Cgroups};
use crate::kernel::Kernel;
use crate::log;
use crate::store::{MapId, Store, Usage};

/// After a boot the cgroups of services and containers are created one by one. Until then a map without one is no orphan, unless it
/// was one before.
const GRACE: Duration = Duration::from_secs(3600);
const PERIOD: Duration = Duration::from_secs(24 * 3600);
/// Between attempts to attach maps for which there were no descriptors or no memory.
const ATTACH_RETRY: Duration = Duration::from_secs(5);

/// An orphan beyond any of these is removed.
#[derive(Clone, Copy, Debug)]
pub struct OrphanLimits {
    pub count: usize,
    /// Of keys and values.
    pub bytes: u64,
    pub age: Duration,
}

pub struct Orphans {
    limits: OrphanLimits,
    /// Maps without a stream, whose cgroup may be gone.
    unchecked: BTreeSet<MapId>,
    /// Whether there is a new orphan.
    is_limit_due: bool,
    next_check: Duration,
}

impl Orphans {
    pub fn new(limits: OrphanLimits, now: Now) -> Self {
        Self {
            limits,
            unchecked: BTreeSet::new(),
            is_limit_due: true,
            next_check: now.monotonic + GRACE,
        }
    }

    pub fn check_map(&mut self, map: MapId) {
        self.unchecked.insert(map);
    }

    pub fn limit(&mut self) {
        self.is_limit_due = true;
    }

    pub fn next_check(&self) -> Duration {
        self.next_check
    }

    pub fn is_check_due(&self, now: Now) -> bool {
        self.is_limit_due || !self.unchecked.is_empty() || self.next_check <= now.monotonic
    }
}

impl<K: Kernel, S: Store, C: Cgroups> Engine<K, S, C> {
    pub(super) fn check_orphans(&mut self) {
        if self.failure.is_some() || !self.orphans.is_check_due(self.now) {
            return;
        }
        if self.orphans.next_check <= self.now.monotonic {
            self.orphans.next_check = self.now.monotonic + PERIOD;
            self.orphans.is_limit_due = true;
            let maps = self.catalogue.iter().map(|entry| entry.map.id);
            self.orphans.unchecked.extend(maps);
        }
        for map in std::mem::take(&mut self.orphans.unchecked) {
            self.check_orphan(map);
        }
        if std::mem::take(&mut self.orphans.is_limit_due) {
            self.limit_orphans();
        }
    }

    fn check_orphan(&mut self, map: MapId) {
        let Some(entry) = self.catalogue.get(map) else {
            return;
        };
        if entry.stream.is_some() {
            return;
        }
        if entry.busy {
            return self.orphans.check_map(map);
        }
        let is_gone = match self.cgroups.scope(&entry.map.path) {
            Ok(_) => false,
            Err(CgroupError::Gone) => true,
            Err(CgroupError::NoResources(_) | CgroupError::Unknown(_)) => return,
        };
        // A cgroup that is there again does not end it: who may create cgroups could otherwise fill the store through one path.
        if is_gone && entry.map.orphaned.is_none() {
            let since = Some(self.time().as_secs());
            self.catalogue.set_busy(map, true);
            self.tasks.push(Task::Orphaned { map, since });
        }
    }

    fn limit_orphans(&mut self) {
        let mut orphans: Vec<(u64, MapId, Usage)> = self
            .catalogue
            .iter()
            .filter(|entry| self.is_orphan(entry))
            .filter_map(|entry| Some((entry.map.orphaned?, entry.map.id, entry.map.usage)))
            .collect();
        orphans.sort_unstable_by_key(|(since, id, _)| (*since, *id));
        for (map, reason) in self.excess(&orphans) {
            if let Some(entry) = self.catalogue.get(map) {
                log::line(format_args!(
                    "removing the stored {}, whose cgroup was removed: {reason}",
                    entry.map
                ));
            }
            self.remove_later(map);
        }
    }

    /// Of the store.
    fn time(&self) -> Duration {
        Duration::from_nanos(self.clock.time(self.now))
    }

    fn is_orphan(&self, entry: &Entry) -> bool {
        entry.map.orphaned.is_some() && entry.stream.is_none() && !entry.busy
    }

    /// Those that are to be removed, of orphans in the order of their age, and why.
    fn excess(&self, orphans: &[(u64, MapId, Usage)]) -> Vec<(MapId, &'static str)> {
        let limits = &self.orphans.limits;
        let (mut count, mut bytes) = (orphans.len(), 0);
        bytes += orphans.iter().map(|(_, _, usage)| usage.bytes).sum::<u64>();
        let mut excess = Vec::new();
        for (since, map, usage) in orphans {
            let age = self.time().as_secs().saturating_sub(*since);
            let reason = match () {
                () if self.clock.is_settled() && age > limits.age.as_secs() => {
                    "it is older than --orphan-max-age"
                }
                () if count > limits.count => "there are more than --orphan-max-count",
                () if bytes > limits.bytes => "they have more than --orphan-max-bytes",
                () => break,
            };
            count -= 1;
            bytes -= usage.bytes;
            excess.push((*map, reason));
        }
        excess
    }

    pub(super) fn attach_stored(&mut self) {
        if self.failure.is_some() || !self.is_attach_due() {
            return;
        }
        self.attach_at = None;
        let is_wanted = |entry: &&Entry| {
            let is_idle = entry.stream.is_none() && !entry.busy;
            is_idle && !entry.map.detached && entry.problem.is_none()
        };
        let wanted = self.catalogue.iter().filter(is_wanted);
        let maps: Vec<_> = wanted
            .map(|entry| (entry.map.id, entry.map.path.clone()))
            .collect();
        for (map, path) in maps {
            // Not all at once: there may be more cgroups than this process may have files.
            match self.cgroups.scope(&path).map(drop) {
                Ok(()) => self.begin(map, super::tasks::Target::Cgroup, false),
                Err(CgroupError::Gone) => {}
                Err(CgroupError::NoResources(text)) => return self.attach_later(&text),
                Err(CgroupError::Unknown(text)) => self.set_error(map, text),
            }
        }
    }

    pub(super) fn is_attach_due(&self) -> bool {
        self.attach_at.is_some_and(|at| at <= self.now.monotonic)
    }

    /// Tries again later to attach the maps that are left.
    pub(super) fn attach_later(&mut self, cause: &str) {
        if self.attach_at.is_none() {
            log::line(format_args!(
                "{cause}; some maps are not attached; trying again every {} s; if this repeats, raise LimitNOFILE= or fs.file-max",
                ATTACH_RETRY.as_secs()
            ));
        }
        self.attach_at = Some(self.now.monotonic + ATTACH_RETRY);
    }

    /// Deletes some entries of removed maps.
    pub(super) fn purge_some(&mut self) {
        let is_idle = self.restorations.is_empty() && self.tasks.is_empty();
        if self.failure.is_some() || !self.purge || !is_idle {
            return;
        }
        let result = match self.store.removed() {
            Ok(None) => {
                self.purge = false;
                return;
            }
            Ok(Some(map)) => {
                let entries = super::PURGED;
                let purge = crate::store::Write::Purge { map, entries };
                self.store.commit(&[purge]).map(drop)
            }
            Err(error) => Err(error),
        };
        if let Err(error) = result {
            self.commit_failed(&error);
        }
    }
}
