// SPDX-License-Identifier: MIT OR Apache-2.0
//! A store in memory, for tests: it loses everything with the process, and fails when it is told to.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use crate::store::{
    MapId, PageLimit, Store, StoreError, StoreErrorKind, StoredClock, StoredEntry, StoredMap,
    Usage, UsageChanges, Write,
};

#[derive(Clone, Default, PartialEq)]
struct Content {
    maps: BTreeMap<MapId, StoredMap>,
    entries: BTreeMap<(MapId, Vec<u8>), StoredEntry>,
    removed: BTreeSet<MapId>,
    last_id: i64,
    clock: Option<StoredClock>,
    /// Of the last transaction.
    changes: UsageChanges,
}

/// What a commit that fails leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failing {
    /// Nothing is stored.
    Before(StoreErrorKind),
    /// Everything is stored, but the caller does not learn that.
    After(StoreErrorKind),
}

#[derive(Default)]
pub struct MemoryStore {
    content: Content,
    /// What each commit does that changes something, until this is none. One that changes nothing succeeds, because SQLite does not
    /// write a row that is as before.
    pub failing: Option<Failing>,
    /// Only `reopen` is permitted.
    broken: bool,
    pub commits: usize,
}

impl MemoryStore {
    /// The value of an entry.
    pub fn value(&self, map: MapId, key: &[u8]) -> Option<&[u8]> {
        let entry = self.content.entries.get(&(map, key.to_vec()));
        entry.map(|entry| entry.value.as_slice())
    }

    /// As after a restoration of an older copy of the store.
    pub fn forget_everything(&mut self) {
        self.content = Content::default();
    }
}

fn error(kind: StoreErrorKind) -> StoreError {
    StoreError {
        kind,
        text: format!("the store in memory fails as it was told to: {kind:?}"),
    }
}

impl Store for MemoryStore {
    fn maps(&mut self) -> Result<Vec<StoredMap>, StoreError> {
        assert!(!self.broken, "maps() after a failed commit");
        Ok(self.content.maps.values().cloned().collect())
    }

    fn page(
        &mut self,
        map: MapId,
        after: Option<&[u8]>,
        limit: PageLimit,
    ) -> Result<Vec<StoredEntry>, StoreError> {
        let begin = match after {
            Some(key) => Bound::Excluded((map, key.to_vec())),
            None => Bound::Included((map, Vec::new())),
        };
        let end = Bound::Excluded((MapId(map.0 + 1), Vec::new()));
        let mut bytes = 0;
        let entries = self.content.entries.range((begin, end));
        let page = entries
            .take(limit.entries)
            .map_while(|(_, entry)| {
                let fits = bytes < limit.bytes;
                bytes += entry.len();
                fits.then(|| entry.clone())
            })
            .collect();
        Ok(page)
    }

    fn clock(&mut self) -> Result<Option<StoredClock>, StoreError> {
        Ok(self.content.clock.clone())
    }

    fn removed(&mut self) -> Result<Option<MapId>, StoreError> {
        Ok(self.content.removed.first().copied())
    }

    fn commit(&mut self, writes: &[Write<'_>]) -> Result<UsageChanges, StoreError> {
        assert!(!self.broken, "commit() after a failed commit");
        let mut content = self.content.clone();
        content.changes = UsageChanges::default();
        self.content.changes = UsageChanges::default();
        for write in writes {
            content.apply(write)?;
        }
        self.commits += 1;
        let failing = self.failing.filter(|_| content != self.content);
        self.broken = failing.is_some();
        match failing {
            Some(Failing::Before(kind)) => return Err(error(kind)),
            Some(Failing::After(kind)) => {
                self.content = content;
                return Err(error(kind));
            }
            None => self.content = content,
        }
        Ok(self.content.changes.clone())
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        self.broken = false;
        Ok(())
    }

    fn last_id(&mut self) -> Result<i64, StoreError> {
        Ok(self.content.last_id)
    }
}

impl Content {
    fn apply(&mut self, write: &Write<'_>) -> Result<(), StoreError> {
        match *write {
            Write::Create(map) => return self.create(map),
            Write::Set {
                map,
                key,
                value,
                version,
                expires_ns,
            } => {
                let entry = StoredEntry {
                    key: key.to_vec(),
                    value: value.to_vec(),
                    version,
                    expires_ns,
                };
                if self.maps.contains_key(&map) {
                    self.replace(map, key, Some(entry));
                }
            }
            Write::Delete { map, key } => self.replace(map, key, None),
            Write::Expire { map, key, version } => {
                let entry = self.entries.get(&(map, key.to_vec()));
                if entry.is_some_and(|entry| entry.version == version) {
                    self.replace(map, key, None);
                }
            }
            Write::Progress {
                map,
                applied,
                reserved,
            } => self.change(map, |map| {
                (map.applied, map.reserved) = (applied, reserved);
            }),
            Write::Detached { map, detached } => self.change(map, |map| map.detached = detached),
            Write::Orphaned { map, since } => self.change(map, |map| map.orphaned = since),
            Write::Clock(clock) => self.clock = Some(clock.clone()),
            Write::Remove(map) => {
                if self.maps.remove(&map).is_some() {
                    self.removed.insert(map);
                }
            }
            Write::Purge { map, entries } => self.purge(map, entries),
        }
        Ok(())
    }

    fn create(&mut self, map: &StoredMap) -> Result<(), StoreError> {
        let same = |other: &StoredMap| {
            (&other.path, &other.name) == (&map.path, &map.name) || other.id == map.id
        };
        if self.maps.values().any(same) {
            return Err(error(StoreErrorKind::Other));
        }
        let map = StoredMap {
            usage: Usage::default(),
            ..map.clone()
        };
        self.last_id = self.last_id.max(map.id.0);
        self.maps.insert(map.id, map);
        Ok(())
    }

    fn change(&mut self, map: MapId, change: impl FnOnce(&mut StoredMap)) {
        if let Some(map) = self.maps.get_mut(&map) {
            change(map);
        }
    }

    fn replace(&mut self, map: MapId, key: &[u8], new: Option<StoredEntry>) {
        let index = (map, key.to_vec());
        let length = |entry: &StoredEntry| entry.value.len();
        let added = new.as_ref().map(length);
        let old = match new {
            Some(entry) => self.entries.insert(index, entry),
            None => self.entries.remove(&index),
        };
        let removed = old.as_ref().map(length);
        self.changes.replaced(map, key, removed, added);
        let mut change = UsageChanges::default();
        change.replaced(map, key, removed, added);
        for change in change.0.into_values() {
            self.change(map, |map| map.usage.change(change));
        }
    }

    fn purge(&mut self, map: MapId, entries: usize) {
        if !self.removed.contains(&map) {
            return;
        }
        let of_map = self.entries.keys().filter(|(of, _)| *of == map);
        let keys: Vec<_> = of_map.take(entries).cloned().collect();
        for key in &keys {
            self.entries.remove(key);
        }
        if keys.len() < entries {
            self.removed.remove(&map);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store_conformance as conformance;

    #[test]
    fn it_is_a_store() {
        conformance::check(MemoryStore::default);
    }

    #[test]
    fn a_commit_fails_as_it_is_told_to() {
        let mut store = MemoryStore::default();
        conformance::fill(&mut store);
        let delete = Write::Delete {
            map: MapId(1),
            key: b"a",
        };
        for (failing, stored) in [
            (Failing::Before(StoreErrorKind::Full), true),
            (Failing::After(StoreErrorKind::Full), false),
        ] {
            store.failing = Some(failing);
            store.commit(std::slice::from_ref(&delete)).unwrap_err();
            store.reopen().unwrap();
            assert_eq!(store.value(MapId(1), b"a").is_some(), stored);
        }
    }
}
