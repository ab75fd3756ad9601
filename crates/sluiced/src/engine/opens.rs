// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opens of maps that the kernel does not have, and unlinks.

use nix::errno::Errno;

use super::tasks::{Target, Task};
use super::{Engine, RESERVATION};
use crate::cgroup::Cgroups;
use crate::kernel::{Kernel, Open};
use crate::store::{MapId, Store, StoredMap, Usage};

/// What an open is answered with.
enum Answer {
    Refuse(Errno),
    /// Later, because something has to end before.
    Wait(Open),
    Restore(MapId),
    New,
}

impl<K: Kernel, S: Store, C: Cgroups> Engine<K, S, C> {
    pub(super) fn answer_opens(&mut self) {
        for open in std::mem::take(&mut self.opens) {
            let stream = open.stream;
            match self.answer(open) {
                Answer::Refuse(errno) => drop(self.refuse_open(stream, errno)),
                Answer::Wait(open) => self.opens.push_back(open),
                Answer::Restore(map) => self.begin(map, Target::Open(stream), false),
                Answer::New => {}
            }
        }
    }

    /// Returns whether a process was still waiting for it.
    pub(super) fn refuse_open(&mut self, stream: u64, errno: Errno) -> bool {
        match self.kernel.refuse(stream, errno) {
            Ok(()) => true,
            // It has given up, which the kernel reports later.
            Err(Errno::EINVAL) => false,
            result => {
                self.expect("refusing the open", stream, result);
                false
            }
        }
    }

    fn answer(&mut self, open: Open) -> Answer {
        if let Some(failure) = &self.failure {
            return Answer::Refuse(failure.errno());
        }
        let Some(map) = self.catalogue.find(&open.path, &open.name) else {
            return self.begin_new(&open);
        };
        match self.catalogue.get(map) {
            Some(entry) if entry.busy => Answer::Wait(open),
            Some(entry) => match entry.stream {
                Some(stream) => self.answer_live(stream, open),
                None => self.answer_stored(map, &open),
            },
            None => Answer::Refuse(Errno::EIO),
        }
    }

    /// The opener has to look again: the name is there by now, or the kernel is about to drop an older copy, as soon as all of its
    /// changes are stored.
    fn answer_live(&mut self, stream: u64, open: Open) -> Answer {
        if self.restorations.prioritize(stream) || self.end_if_lost(stream) {
            return Answer::Wait(open);
        }
        match self.streams.get_mut(&stream) {
            Some(older) if !older.pending.is_empty() => {
                older.make_due(self.now.monotonic);
                Answer::Wait(open)
            }
            _ => Answer::Refuse(Errno::ESTALE),
        }
    }

    fn answer_stored(&self, map: MapId, open: &Open) -> Answer {
        let owner = self.catalogue.get(map).map(|entry| entry.map.params.uid);
        if owner != Some(open.params.uid) && !open.administrator {
            return Answer::Refuse(Errno::EACCES);
        }
        match open.exclusive {
            true => Answer::Refuse(Errno::EEXIST),
            false => Answer::Restore(map),
        }
    }

    fn begin_new(&mut self, open: &Open) -> Answer {
        self.last_id += 1;
        let map = StoredMap {
            id: MapId(self.last_id),
            path: open.path.clone(),
            name: open.name.clone(),
            params: open.params.clone(),
            applied: 0,
            reserved: RESERVATION,
            detached: false,
            created: self.now.realtime.as_secs(),
            orphaned: None,
            usage: Usage::default(),
        };
        let id = map.id;
        self.catalogue.insert(map);
        self.begin(id, Target::Open(open.stream), true);
        Answer::New
    }

    pub(super) fn begin(&mut self, map: MapId, target: Target, is_new: bool) {
        self.catalogue.set_busy(map, true);
        self.tasks.push(Task::Begin {
            map,
            target,
            is_new,
        });
    }

    pub(super) fn advance_unlinks(&mut self) {
        for stream in self.unlinking.clone() {
            let map = self.streams.get(&stream).and_then(|stream| stream.map);
            let entry = map.and_then(|map| self.catalogue.get(map));
            match (entry, &self.failure) {
                (None, _) => {
                    let result = self.kernel.unlinked(stream);
                    self.close_stream(stream);
                    self.expect("unlinking", stream, result);
                }
                (Some(entry), _) if entry.busy => {}
                (Some(_), Some(failure)) => {
                    let errno = failure.errno();
                    self.refuse_unlink(stream, errno);
                }
                (Some(entry), None) => {
                    let map = entry.map.id;
                    self.unlinking.remove(&stream);
                    self.catalogue.set_busy(map, true);
                    self.tasks.push(Task::Unlink { map, stream });
                }
            }
        }
    }

    pub(super) fn refuse_unlink(&mut self, stream: u64, errno: Errno) {
        self.unlinking.remove(&stream);
        let result = self.kernel.refuse_unlink(stream, errno);
        self.expect("refusing the unlink", stream, result);
    }
}
