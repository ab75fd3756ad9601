// SPDX-License-Identifier: MIT OR Apache-2.0
//! The stored maps as of the last commit, without their entries, and what the daemon does with them.

use std::collections::{BTreeMap, HashMap};

use sluiced_protocol::MapState;

use crate::store::{MapId, StoredMap, UsageChanges};

pub struct Entry {
    pub map: StoredMap,
    /// Of the kernel's copy.
    pub stream: Option<u64>,
    /// A task of it waits for a commit.
    pub busy: bool,
    pub problem: Option<Problem>,
}

/// Why a map is not attached, or its changes are not stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub state: MapState,
    pub text: String,
}

#[derive(Default)]
pub struct Catalogue {
    entries: BTreeMap<MapId, Entry>,
    ids: HashMap<(Vec<u8>, Vec<u8>), MapId>,
}

impl Catalogue {
    pub fn new(maps: Vec<StoredMap>) -> Self {
        let mut catalogue = Self::default();
        for map in maps {
            catalogue.insert(map);
        }
        catalogue
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn insert(&mut self, map: StoredMap) {
        let id = map.id;
        self.ids.insert((map.path.clone(), map.name.clone()), id);
        let entry = Entry {
            map,
            stream: None,
            busy: false,
            problem: None,
        };
        self.entries.insert(id, entry);
    }

    pub fn remove(&mut self, id: MapId) -> Option<Entry> {
        let entry = self.entries.remove(&id)?;
        let name = (entry.map.path.clone(), entry.map.name.clone());
        if self.ids.get(&name) == Some(&id) {
            self.ids.remove(&name);
        }
        Some(entry)
    }

    pub fn get(&self, id: MapId) -> Option<&Entry> {
        self.entries.get(&id)
    }

    pub fn get_mut(&mut self, id: MapId) -> Option<&mut Entry> {
        self.entries.get_mut(&id)
    }

    pub fn find(&self, path: &[u8], name: &[u8]) -> Option<MapId> {
        let name = (path.to_vec(), name.to_vec());
        self.ids.get(&name).copied()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    pub fn change_usage(&mut self, changes: &UsageChanges) {
        for (map, change) in &changes.0 {
            if let Some(entry) = self.get_mut(*map) {
                entry.map.usage.change(*change);
            }
        }
    }

    pub fn set_busy(&mut self, id: MapId, busy: bool) {
        if let Some(entry) = self.get_mut(id) {
            entry.busy = busy;
        }
    }

    /// What the store has after it was opened anew. What the daemon does with a map that is still there goes on.
    pub fn reload(&mut self, maps: Vec<StoredMap>) {
        let mut old = std::mem::take(self);
        for map in maps {
            let (id, before) = (map.id, old.remove(map.id));
            self.insert(map);
            if let (Some(entry), Some(before)) = (self.get_mut(id), before) {
                entry.stream = before.stream;
                entry.busy = before.busy;
                entry.problem = before.problem;
            }
        }
    }
}
