// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changes of the store that are no changes of entries, and what follows once they are stored.

use nix::errno::Errno;
use sluice::Scope;
use sluiced_protocol::MapState;

use super::catalogue::{Catalogue, Problem};
use super::stream::{Phase, Stream};
use super::{Engine, RESERVATION};
use crate::cgroup::{CgroupError, Cgroups};
use crate::kernel::Kernel;
use crate::log;
use crate::store::{MapId, Store, StoreError, StoredMap, Write};

pub enum Task {
    /// Makes the kernel's copy, whose numbers must be reserved before.
    Begin {
        map: MapId,
        target: Target,
        is_new: bool,
    },
    Unlink {
        map: MapId,
        stream: u64,
    },
    Detached {
        map: MapId,
        detached: bool,
    },
    Orphaned {
        map: MapId,
        since: Option<u64>,
    },
    Remove {
        map: MapId,
    },
}

/// For whom a map is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The stream of an open.
    Open(u64),
    /// The daemon itself.
    Cgroup,
}

impl Task {
    pub fn map(&self) -> MapId {
        match *self {
            Self::Begin { map, .. }
            | Self::Unlink { map, .. }
            | Self::Detached { map, .. }
            | Self::Orphaned { map, .. }
            | Self::Remove { map } => map,
        }
    }

    pub fn write<'a>(&self, catalogue: &'a Catalogue, writes: &mut Vec<Write<'a>>) {
        match *self {
            Self::Begin { map, is_new, .. } => {
                if let Some(entry) = catalogue.get(map) {
                    write_begin(&entry.map, is_new, writes);
                }
            }
            Self::Detached { map, detached } => writes.push(Write::Detached { map, detached }),
            Self::Orphaned { map, since } => writes.push(Write::Orphaned { map, since }),
            Self::Unlink { map, .. } | Self::Remove { map } => writes.push(Write::Remove(map)),
        }
    }
}

fn write_begin<'a>(map: &'a StoredMap, is_new: bool, writes: &mut Vec<Write<'a>>) {
    if is_new {
        return writes.push(Write::Create(map));
    }
    let (applied, reserved) = begun(map);
    let map = map.id;
    writes.push(Write::Progress {
        map,
        applied,
        reserved,
    });
    writes.push(Write::Detached {
        map,
        detached: false,
    });
    writes.push(Write::Orphaned { map, since: None });
}

/// The numbers of a map that begins again: a change that was answered may have had any number that was reserved.
fn begun(map: &StoredMap) -> (u64, u64) {
    (map.reserved, map.reserved.saturating_add(RESERVATION))
}

impl<K: Kernel, S: Store, C: Cgroups> Engine<K, S, C> {
    /// The writes of these tasks are stored.
    pub(super) fn tasks_stored(&mut self, tasks: Vec<Task>) {
        for task in tasks {
            self.catalogue.set_busy(task.map(), false);
            match task {
                Task::Begin {
                    map,
                    target,
                    is_new,
                } => self.begin_stored(map, target, is_new),
                Task::Unlink { map, stream } => {
                    self.removed(map);
                    self.close_stream(stream);
                    let result = self.kernel.unlinked(stream);
                    self.expect("unlinking", stream, result);
                }
                Task::Detached { map, detached } => {
                    if let Some(entry) = self.catalogue.get_mut(map) {
                        entry.map.detached = detached;
                    }
                }
                Task::Orphaned { map, since } => {
                    if let Some(entry) = self.catalogue.get_mut(map) {
                        entry.map.orphaned = since;
                        self.orphans.limit();
                    }
                }
                Task::Remove { map } => self.removed(map),
            }
        }
    }

    fn removed(&mut self, map: MapId) {
        self.catalogue.remove(map);
        self.purge = true;
    }

    fn begin_stored(&mut self, map: MapId, target: Target, is_new: bool) {
        let Some(entry) = self.catalogue.get_mut(map) else {
            return;
        };
        if !is_new {
            (entry.map.applied, entry.map.reserved) = begun(&entry.map);
            entry.map.detached = false;
            entry.map.orphaned = None;
        }
        entry.problem = None;
        let stored = entry.map.clone();
        match self.create(&stored, target) {
            Ok(stream) => self.created(&stored, stream, target, is_new),
            Err(problem) => self.not_created(&stored, target, is_new, problem),
        }
    }

    fn create(&mut self, map: &StoredMap, target: Target) -> Result<u64, Failed> {
        match target {
            Target::Open(stream) => {
                let created = self.kernel.create(stream, map);
                created.map(|()| stream).map_err(Failed::Call)
            }
            Target::Cgroup => {
                let scope = self.scope(map).map_err(Failed::Cgroup)?;
                self.kernel.attach(&scope, map).map_err(Failed::Call)
            }
        }
    }

    fn scope(&self, map: &StoredMap) -> Result<Scope, CgroupError> {
        self.cgroups.scope(&map.path)
    }

    fn created(&mut self, map: &StoredMap, id: u64, target: Target, is_new: bool) {
        let mut stream = Stream::new(Some(map.id), map.map_name(), &map.params, Phase::Restoring);
        stream.delivered = map.applied;
        stream.acknowledged = map.applied;
        stream.limit = map.reserved;
        self.streams.insert(id, stream);
        if let Some(entry) = self.catalogue.get_mut(map.id) {
            entry.stream = Some(id);
        }
        if !is_new {
            return self.restorations.add(id, map.id, target);
        }
        self.complete(id);
        // Its opener has given up.
        if !self.is_live(map.id) {
            self.remove_later(map.id);
        }
    }

    fn not_created(&mut self, map: &StoredMap, target: Target, is_new: bool, failed: Failed) {
        let is_given_up = match (target, &failed) {
            (_, Failed::Call(Errno::ENOENT)) => true,
            (Target::Open(stream), Failed::Call(errno)) => !self.refuse_open(stream, *errno),
            _ => false,
        };
        if is_new {
            return self.remove_later(map.id);
        }
        if is_given_up {
            return self.orphans.check_map(map.id);
        }
        match (target, failed) {
            // The open asks again, with another table.
            (Target::Open(_), Failed::Call(Errno::ESTALE)) => {}
            (_, Failed::Cgroup(CgroupError::Gone)) => self.orphans.check_map(map.id),
            (_, Failed::Cgroup(CgroupError::NoResources(text))) => self.attach_later(&text),
            (_, Failed::Cgroup(CgroupError::Unknown(text))) => self.set_error(map.id, text),
            (_, Failed::Call(errno)) => self.set_problem(map.id, problem_of(errno)),
        }
    }

    pub(super) fn remove_later(&mut self, map: MapId) {
        self.catalogue.set_busy(map, true);
        self.tasks.push(Task::Remove { map });
    }

    pub(super) fn set_error(&mut self, map: MapId, text: String) {
        let state = MapState::Error;
        self.set_problem(map, Problem { state, text });
    }

    pub(super) fn set_problem(&mut self, map: MapId, problem: Problem) {
        if let Some(entry) = self.catalogue.get_mut(map) {
            log::line(format_args!(
                "{} is not attached: {}",
                entry.map, problem.text
            ));
            entry.problem = Some(problem);
        }
    }

    /// It is not known whether the writes of these tasks are stored. `reopened`: the catalogue is that of the store.
    pub(super) fn tasks_failed(&mut self, tasks: Vec<Task>, error: &StoreError, reopened: bool) {
        for task in tasks {
            let map = task.map();
            match task {
                // Whether the map is there decides what the kernel has to be told.
                Task::Unlink { stream, .. } => {
                    match reopened && self.catalogue.get(map).is_some() {
                        true => {
                            self.catalogue.set_busy(map, false);
                            self.refuse_unlink(stream, error.errno());
                        }
                        false => self.tasks.push(task),
                    }
                }
                Task::Begin { target, is_new, .. } => {
                    self.catalogue.set_busy(map, false);
                    if let Target::Open(stream) = target {
                        self.refuse_open(stream, error.errno());
                    }
                    match is_new {
                        true => {
                            self.catalogue.remove(map);
                            self.tasks.push(Task::Remove { map });
                        }
                        false => self.attach_at = Some(self.now.monotonic),
                    }
                }
                Task::Remove { .. } | Task::Detached { .. } | Task::Orphaned { .. } => {
                    self.catalogue.set_busy(map, false);
                    self.job_failed(map, error);
                }
            }
        }
    }
}

/// Why the kernel's copy was not made.
enum Failed {
    Cgroup(CgroupError),
    Call(Errno),
}

pub fn problem_of(errno: Errno) -> Problem {
    let (state, text) = match errno {
        Errno::EDQUOT => (
            MapState::OverQuota,
            "its owner has too many channels, or too large ones; remove some, or raise user_max_channels or user_max_bytes, then run 'sluice store attach'",
        ),
        Errno::ENOSPC => (
            MapState::OverQuota,
            "its cgroup has too many channels, or too large ones; remove some, or raise scope_max_channels, then run 'sluice store attach'",
        ),
        Errno::EEXIST => (
            MapState::Error,
            "there is another map of this name; remove it with 'sluice map rm', then run 'sluice store attach'",
        ),
        Errno::ENOMEM => (
            MapState::Error,
            "there is no memory for it; free some, or raise memory.max, then run 'sluice store attach'",
        ),
        Errno::EIO => (
            MapState::Error,
            "its entries cannot be read; see the log of sluiced and that of the kernel",
        ),
        Errno::E2BIG => (
            MapState::Error,
            "the module is too old for a durable map that is mapped; load a newer one, then run 'sluice store attach'",
        ),
        _ => {
            let text = format!("the module refuses it: {errno}; run 'sluice doctor'");
            let state = MapState::Error;
            return Problem { state, text };
        }
    };
    let text = text.to_owned();
    Problem { state, text }
}
