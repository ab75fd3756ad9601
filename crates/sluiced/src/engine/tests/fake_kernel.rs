// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's side of docs/abi/map-keeper.md, as far as the engine can tell. It checks that nothing is acknowledged before it is stored.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use nix::errno::Errno;
use sluice::Scope;

use super::SharedStore;
use crate::kernel::{Change, Kernel, Message, Open, Received, Resume, Value};
use crate::store::{MapId, Params, Store as _, StoredEntry, StoredMap};

/// What an opener got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opened {
    Waiting,
    Ready,
    Failed(Errno),
}

/// A stream with its copy of a map.
#[derive(Default)]
pub struct Copy {
    pub path: Vec<u8>,
    pub name: Vec<u8>,
    pub params: Params,
    /// Between `create` and `ready`: whether the stream is not one of an opener.
    restoring: Option<bool>,
    /// It has its name.
    pub ready: bool,
    pub entries: BTreeMap<Vec<u8>, (u64, Value)>,
    pub sequence: u64,
    pub limit: u64,
    pub acknowledged: u64,
    pub error: Option<Errno>,
    /// Not acknowledged.
    records: VecDeque<Change>,
    delivered: u64,
    unlinking: bool,
    removed: bool,
}

#[derive(Default)]
pub struct State {
    pub copies: BTreeMap<u64, Copy>,
    /// What each open was answered.
    pub opened: BTreeMap<u64, Opened>,
    pub unlinked: BTreeMap<u64, Option<Errno>>,
    opens: BTreeMap<u64, Open>,
    queue: VecDeque<Message>,
    last_stream: u64,
    /// What the next `create` or `attach` fails with.
    pub create_error: Option<Errno>,
    /// Entries of each call.
    pub restored: Vec<usize>,
    /// Maps that have the numbers from here on only reserved.
    pub reservations: Vec<(u64, u64)>,
}

#[derive(Clone)]
pub struct FakeKernel {
    pub state: Rc<RefCell<State>>,
    pub store: SharedStore,
}

impl FakeKernel {
    pub fn new(store: SharedStore) -> Self {
        Self {
            state: Rc::default(),
            store,
        }
    }

    /// Whether there is no message.
    pub fn is_read(&self) -> bool {
        self.state.borrow().queue.is_empty()
    }

    /// A process opens a map that may not be there. Returns the stream.
    pub fn open(&self, path: &str, name: &str, uid: u32) -> u64 {
        self.open_as(|stream| Open {
            stream,
            path: path.into(),
            name: name.into(),
            params: Params {
                uid,
                flags: 1,
                ..Params::default()
            },
            exclusive: false,
            administrator: false,
        })
    }

    pub fn open_as(&self, open: impl FnOnce(u64) -> Open) -> u64 {
        let mut state = self.state.borrow_mut();
        let stream = state.new_stream();
        let open = open(stream);
        state.opened.insert(stream, Opened::Waiting);
        state.opens.insert(stream, open.clone());
        state.queue.push_back(Message::Open(open));
        stream
    }

    /// The opener gives up.
    pub fn give_up(&self, stream: u64) {
        let mut state = self.state.borrow_mut();
        state.opens.remove(&stream);
        state.copies.remove(&stream);
        state.queue.push_back(Message::Closed { stream });
    }

    pub fn opened(&self, stream: u64) -> Opened {
        self.state.borrow().opened[&stream]
    }

    /// The copy that has this name.
    pub fn named(&self, path: &str, name: &str) -> Option<u64> {
        let state = self.state.borrow();
        let is_named = |copy: &Copy| {
            copy.ready
                && !copy.removed
                && copy.path == path.as_bytes()
                && copy.name == name.as_bytes()
        };
        let mut copies = state.copies.iter();
        copies.find(|(_, copy)| is_named(copy)).map(|(id, _)| *id)
    }

    pub fn set(&self, stream: u64, key: &str, value: &str) -> Result<u64, Errno> {
        self.change(stream, key, Some((value, 0)))
    }

    pub fn set_until(&self, stream: u64, key: &str, expires_ns: u64) -> Result<u64, Errno> {
        self.change(stream, key, Some(("value", expires_ns)))
    }

    pub fn delete(&self, stream: u64, key: &str) -> Result<u64, Errno> {
        self.change(stream, key, None)
    }

    fn change(&self, stream: u64, key: &str, value: Option<(&str, u64)>) -> Result<u64, Errno> {
        let mut state = self.state.borrow_mut();
        let copy = state.copies.get_mut(&stream).ok_or(Errno::EIDRM)?;
        if copy.unlinking || copy.removed {
            return Err(Errno::EIDRM);
        }
        if let Some(errno) = copy.error {
            return Err(errno);
        }
        if copy.sequence == copy.limit {
            return Err(Errno::EAGAIN);
        }
        copy.sequence += 1;
        let change = Change {
            number: copy.sequence,
            key: key.into(),
            value: value.map(|(bytes, expires_ns)| Value {
                bytes: bytes.into(),
                expires_ns,
            }),
        };
        match &change.value {
            Some(value) => {
                let entry = (change.number, value.clone());
                copy.entries.insert(change.key.clone(), entry);
            }
            None => drop(copy.entries.remove(&change.key)),
        }
        copy.records.push_back(change.clone());
        let number = copy.sequence;
        state.queue.push_back(Message::Change { stream, change });
        Ok(number)
    }

    pub fn sync(&self, stream: u64) {
        self.state
            .borrow_mut()
            .queue
            .push_back(Message::Sync { stream });
    }

    pub fn unlink(&self, stream: u64) {
        let mut state = self.state.borrow_mut();
        if let Some(copy) = state.copies.get_mut(&stream) {
            copy.unlinking = true;
            state.queue.push_back(Message::Unlink { stream });
        }
    }

    /// The cgroup of this path is removed.
    pub fn remove_cgroup(&self, path: &str) {
        let mut state = self.state.borrow_mut();
        for copy in state.copies.values_mut() {
            copy.removed |= copy.ready && copy.path == path.as_bytes();
        }
        state.close_removed();
    }

    /// The daemon is gone, and another one begins.
    pub fn restart(&self) {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        state.queue.clear();
        state.copies.retain(|_, copy| copy.ready);
        for (stream, copy) in &mut state.copies {
            copy.delivered = copy.acknowledged;
            state.queue.push_back(Message::Resume(Resume {
                stream: *stream,
                path: copy.path.clone(),
                name: copy.name.clone(),
                params: copy.params.clone(),
                stored: copy.acknowledged,
            }));
            let changes = copy.records.iter().cloned();
            let stream = *stream;
            let changes = changes.map(|change| Message::Change { stream, change });
            state.queue.extend(changes);
            if copy.unlinking {
                state.queue.push_back(Message::Unlink { stream });
            }
        }
        for (before, mut open) in std::mem::take(&mut state.opens) {
            state.opened.remove(&before);
            open.stream = state.new_stream();
            state.opened.insert(open.stream, Opened::Waiting);
            state.opens.insert(open.stream, open.clone());
            // Before the streams that it might overtake.
            state.queue.push_front(Message::Open(open));
        }
        state.close_removed();
    }

    fn begin(&self, stream: u64, map: &StoredMap, is_attach: bool) -> Result<(), Errno> {
        self.expect_stored(map, map.reserved);
        let mut state = self.state.borrow_mut();
        if let Some(errno) = state.create_error.take() {
            return Err(errno);
        }
        let copy = Copy {
            path: map.path.clone(),
            name: map.name.clone(),
            params: map.params.clone(),
            restoring: Some(is_attach),
            sequence: map.applied,
            limit: map.reserved,
            acknowledged: map.applied,
            delivered: map.applied,
            ..Copy::default()
        };
        state.copies.insert(stream, copy);
        state.reservations.push((map.applied, map.reserved));
        Ok(())
    }

    /// Numbers that the kernel may use are reserved.
    fn expect_stored(&self, map: &StoredMap, limit: u64) {
        let maps = self.store.0.borrow_mut().maps().unwrap();
        let stored = maps.iter().find(|stored| stored.id == map.id);
        let reserved = stored.map(|stored| stored.reserved);
        assert!(
            reserved >= Some(limit),
            "{limit} is not reserved: {reserved:?}"
        );
    }

    /// What is acknowledged is stored, as the last change of its key.
    fn expect_acknowledged(&self, copy: &Copy, sequence: u64, limit: u64) {
        let mut store = self.store.0.borrow_mut();
        let maps = store.maps().unwrap();
        let map = maps
            .iter()
            .find(|map| map.path == copy.path && map.name == copy.name);
        let Some(map) = map else {
            // Deleted in the same transaction.
            assert!(
                copy.unlinking,
                "changes of a map that is not stored are acknowledged"
            );
            return;
        };
        assert!(map.applied >= sequence && map.reserved >= limit);
        // Only the last change of a key is visible, also if it is not acknowledged yet.
        let records = copy.records.iter();
        let last: BTreeMap<_, _> = records.map(|change| (&change.key, change)).collect();
        for (key, change) in last {
            if change.number <= sequence {
                let expected = change.value.as_ref().map(|value| value.bytes.as_slice());
                assert_eq!(store.value(map.id, key), expected);
            }
        }
    }
}

impl State {
    fn new_stream(&mut self) -> u64 {
        self.last_stream += 1;
        self.last_stream
    }

    fn close_removed(&mut self) {
        let is_done = |copy: &Copy| copy.removed && copy.records.is_empty();
        let closed: Vec<u64> = self
            .copies
            .iter()
            .filter(|(_, copy)| is_done(copy))
            .map(|(stream, _)| *stream)
            .collect();
        for stream in closed {
            self.copies.remove(&stream);
            self.queue.push_back(Message::Closed { stream });
        }
    }
}

impl Kernel for FakeKernel {
    fn receive(&mut self, inbox: &mut Vec<Message>) -> Result<Received, String> {
        let mut state = self.state.borrow_mut();
        for _ in 0..16 {
            let Some(message) = state.queue.pop_front() else {
                return Ok(Received::All);
            };
            if let Message::Change { stream, change } = &message
                && let Some(copy) = state.copies.get_mut(stream)
            {
                copy.delivered = copy.delivered.max(change.number);
            }
            inbox.push(message);
        }
        Ok(Received::Some)
    }

    fn create(&mut self, stream: u64, map: &StoredMap) -> Result<(), Errno> {
        if !self.state.borrow().opens.contains_key(&stream) {
            return Err(Errno::ENOENT);
        }
        self.begin(stream, map, false)
    }

    fn attach(&mut self, _: &Scope, map: &StoredMap) -> Result<u64, Errno> {
        let stream = self.state.borrow_mut().new_stream();
        self.begin(stream, map, true)?;
        Ok(stream)
    }

    fn restore(&mut self, stream: u64, entries: &[StoredEntry]) -> Result<(), Errno> {
        let mut state = self.state.borrow_mut();
        state.restored.push(entries.len());
        let copy = state.copies.get_mut(&stream).ok_or(Errno::ENOENT)?;
        assert!(copy.restoring.is_some() && entries.len() <= 256);
        for entry in entries {
            assert!(entry.version <= copy.sequence);
            let value = Value {
                bytes: entry.value.clone(),
                expires_ns: entry.expires_ns,
            };
            let old = copy
                .entries
                .insert(entry.key.clone(), (entry.version, value));
            assert_eq!(old, None, "restored twice");
        }
        Ok(())
    }

    fn ready(&mut self, stream: u64) -> Result<(), Errno> {
        let mut state = self.state.borrow_mut();
        let copy = state.copies.get_mut(&stream).ok_or(Errno::ENOENT)?;
        copy.restoring.take().ok_or(Errno::EINVAL)?;
        copy.ready = true;
        if state.opens.remove(&stream).is_some() {
            state.opened.insert(stream, Opened::Ready);
        }
        Ok(())
    }

    fn refuse(&mut self, stream: u64, errno: Errno) -> Result<(), Errno> {
        let mut state = self.state.borrow_mut();
        let had_copy = state.copies.remove(&stream).is_some();
        if state.opens.remove(&stream).is_some() {
            state.opened.insert(stream, Opened::Failed(errno));
            return Ok(());
        }
        if had_copy { Ok(()) } else { Err(Errno::ENOENT) }
    }

    fn acknowledge(
        &mut self,
        stream: u64,
        sequence: u64,
        limit: u64,
        error: Option<Errno>,
    ) -> Result<(), Errno> {
        let mut state = self.state.borrow_mut();
        let copy = state.copies.get_mut(&stream).ok_or(Errno::ENOENT)?;
        if sequence != 0 {
            if sequence > copy.delivered || sequence < copy.acknowledged {
                return Err(Errno::EINVAL);
            }
            self.expect_acknowledged(copy, sequence, limit);
            copy.acknowledged = sequence;
            copy.records.retain(|change| change.number > sequence);
        }
        if limit != 0 {
            assert!(limit >= copy.limit, "the limit decreases");
            copy.limit = limit;
        }
        copy.error = error;
        state.close_removed();
        Ok(())
    }

    fn unlinked(&mut self, stream: u64) -> Result<(), Errno> {
        let mut state = self.state.borrow_mut();
        let copy = state.copies.remove(&stream).ok_or(Errno::ENOENT)?;
        assert!(copy.unlinking);
        state.unlinked.insert(stream, None);
        Ok(())
    }

    fn refuse_unlink(&mut self, stream: u64, errno: Errno) -> Result<(), Errno> {
        let mut state = self.state.borrow_mut();
        let copy = state.copies.get_mut(&stream).ok_or(Errno::ENOENT)?;
        copy.unlinking = false;
        state.unlinked.insert(stream, Some(errno));
        Ok(())
    }

    fn detach(&mut self, stream: u64) -> Result<(), Errno> {
        let mut state = self.state.borrow_mut();
        let copy = state.copies.get(&stream).ok_or(Errno::ENOENT)?;
        if !copy.records.is_empty() && !copy.removed {
            return Err(Errno::EBUSY);
        }
        state.copies.remove(&stream);
        Ok(())
    }
}

/// The stored value of an entry.
pub fn stored_value(store: &SharedStore, map: MapId, key: &str) -> Option<Vec<u8>> {
    let store = store.0.borrow();
    store.value(map, key.as_bytes()).map(<[u8]>::to_vec)
}
