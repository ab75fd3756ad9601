// SPDX-License-Identifier: MIT OR Apache-2.0
//! What each message of the kernel changes in the daemon.

use std::time::Duration;

use nix::errno::Errno;
use sluiced_protocol::MapName;

use super::stream::{Phase, Stream, interval};
use super::{Engine, PENDING_MAX, RESERVATION};
use crate::cgroup::Cgroups;
use crate::kernel::{Change, Kernel, Message, Resume};
use crate::log;
use crate::store::{MapId, Store};

impl<K: Kernel, S: Store, C: Cgroups> Engine<K, S, C> {
    pub(super) fn handle(&mut self, message: Message) {
        match message {
            Message::Open(open) => self.opens.push_back(open),
            Message::Resume(resume) => self.resume(&resume),
            Message::Change { stream, change } => self.change(stream, change),
            Message::Unlink { stream } => {
                if self.streams.contains_key(&stream) {
                    self.unlinking.insert(stream);
                }
            }
            Message::Closed { stream } => self.closed(stream),
            Message::Sync { stream } => self.sync(stream),
        }
    }

    /// The kernel has all changes that it does not know to be stored, and delivers them again.
    fn resume(&mut self, resume: &Resume) {
        let map = self.catalogue.find(&resume.path, &resume.name);
        let phase = match self.loss(map, resume) {
            Some(text) => {
                log::line(format_args!("{}: {text}", map_name(resume)));
                Phase::Lost(text)
            }
            None => Phase::Live,
        };
        let is_free = |map: &MapId| {
            self.catalogue
                .get(*map)
                .is_some_and(|entry| entry.stream.is_none())
        };
        let map = map.filter(is_free);
        let mut stream = Stream::new(map, map_name(resume), &resume.params, phase);
        stream.delivered = resume.stored;
        stream.acknowledged = resume.stored;
        let mut detached = false;
        if let Some(entry) = map.and_then(|map| self.catalogue.get_mut(map)) {
            stream.limit = entry.map.reserved;
            entry.stream = Some(resume.stream);
            detached = entry.map.detached;
        }
        self.answer_resume(resume.stream, stream);
        if detached {
            self.begin_detach(resume.stream);
        }
    }

    /// Why the store is not that of this stream.
    fn loss(&self, map: Option<MapId>, resume: &Resume) -> Option<String> {
        let entry = map.and_then(|map| self.catalogue.get(map));
        let cause = match entry {
            None => "it is not in the store".to_owned(),
            Some(entry) if entry.stream.is_some() => "it is attached twice".to_owned(),
            Some(entry) if entry.map.applied < resume.stored => format!(
                "the store has its changes up to {}, but those up to {} were stored",
                entry.map.applied, resume.stored
            ),
            Some(_) => return None,
        };
        Some(format!(
            "its changes cannot be stored: {cause}; export it, remove it, and import it into a new one (sluice-map(1))"
        ))
    }

    fn answer_resume(&mut self, id: u64, mut stream: Stream) {
        let error = match &stream.phase {
            Phase::Lost(_) => Some(Errno::EIO),
            _ => self.failure.as_ref().map(|failure| failure.errno()),
        };
        let limit = if stream.is_lost() { 0 } else { stream.limit };
        stream.error = error;
        self.streams.insert(id, stream);
        let result = self.kernel.acknowledge(id, 0, limit, error);
        self.expect("resuming", id, result);
    }

    fn change(&mut self, id: u64, mut change: Change) {
        if let Some(value) = &mut change.value {
            value.expires_ns = self.clock.stored_expiry(value.expires_ns);
        }
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        stream.delivered = stream.delivered.max(change.number);
        if stream.is_lost() {
            return;
        }
        let Some(map) = stream.map.and_then(|map| self.catalogue.get(map)) else {
            return;
        };
        self.dirty.insert(id);
        // Stored by an earlier daemon that could not acknowledge it any more.
        if change.number > map.map.applied {
            stream.pending.add(change);
        }
        let is_ample = stream.pending.bytes < PENDING_MAX
            && stream.limit.saturating_sub(stream.delivered) >= RESERVATION / 2;
        let delay = match interval(&stream.params) {
            Some(interval) if is_ample => interval,
            _ => Duration::ZERO,
        };
        stream.make_due(self.now.monotonic + delay);
    }

    /// After everything was acknowledged, or nobody waits for the rest.
    fn closed(&mut self, id: u64) {
        let stream = self.streams.get(&id);
        let unchanged = stream.filter(|stream| stream.delivered == 0);
        let map = unchanged.and_then(|stream| stream.map);
        self.close_stream(id);
        if let Some(map) = map.filter(|map| self.is_superseded(*map)) {
            self.remove_if_new(map);
        }
    }

    /// Whether the map has lost its name although its cgroup exists: another channel got the name first. Who opens one of each
    /// kind, over and over again, would otherwise fill the store.
    fn is_superseded(&self, map: MapId) -> bool {
        let entry = self.catalogue.get(map).filter(|entry| !entry.busy);
        entry.is_some_and(|entry| self.cgroups.scope(&entry.map.path).is_ok())
    }

    fn sync(&mut self, id: u64) {
        let stream = self.streams.get_mut(&id);
        if let Some(stream) = stream.filter(|stream| !stream.pending.is_empty()) {
            stream.make_due(self.now.monotonic);
        }
    }
}

fn map_name(resume: &Resume) -> MapName {
    MapName {
        path: resume.path.as_slice().into(),
        name: resume.name.as_slice().into(),
    }
}
