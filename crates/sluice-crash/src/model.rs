// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a map may contain, by its history: a store is that of all changes up to its number `applied`, and of no other.

use std::collections::{BTreeMap, HashMap, HashSet};

use anyhow::{Result, bail};

use crate::history::{History, Outcome, Record};
use crate::mark::Mark;
use crate::store::{Contents, Entry};
use crate::workload::{Change, Id, Workload};

pub struct Model {
    workload: Workload,
    keys: BTreeMap<Vec<u8>, Key>,
    /// The number of each change that has a known one.
    numbers: HashMap<u64, Id>,
    /// What was answered last.
    pub end: Mark,
}

/// The changes of a key.
#[derive(Default)]
struct Key {
    /// With their numbers, which ascend.
    known: Vec<(u64, Id)>,
    /// Those that may have been made, or not.
    unknown: Vec<Id>,
}

impl Model {
    pub fn new(history: &History) -> Result<Model> {
        let mut model = Model {
            workload: history.workload,
            keys: BTreeMap::new(),
            numbers: HashMap::new(),
            end: Mark::default(),
        };
        for record in &history.records {
            model.add(record)?;
        }
        let unrecorded = if history.complete {
            BTreeMap::new()
        } else {
            history.next()
        };
        for (writer, index) in unrecorded {
            model.add(&Record {
                id: Id { writer, index },
                outcome: Outcome::Unknown,
            })?;
        }
        for key in model.keys.values_mut() {
            key.known.sort_unstable();
        }
        Ok(model)
    }

    fn add(&mut self, record: &Record) -> Result<()> {
        let key = self.workload.operation(record.id).key;
        let key = self.keys.entry(key).or_default();
        match record.outcome {
            Outcome::Stored(number) | Outcome::Made(number) => {
                key.known.push((number, record.id));
                self.end.answered = self.end.answered.max(number);
                if matches!(record.outcome, Outcome::Stored(_)) {
                    self.end.stored = self.end.stored.max(number);
                }
                if let Some(other) = self.numbers.insert(number, record.id) {
                    bail!(
                        "the number {number} was answered for {other:?} and for {:?}",
                        record.id
                    );
                }
            }
            Outcome::Synced(number) => self.end.stored = self.end.stored.max(number),
            Outcome::Unknown => key.unknown.push(record.id),
            Outcome::Refused(_) => {}
        }
        Ok(())
    }

    /// Everything that is wrong with a map, of which a mark says what was acknowledged. `None`: nothing was, nor the map created.
    pub fn check(&self, contents: Option<&Contents>, mark: Option<Mark>) -> Vec<String> {
        let Some(contents) = contents else {
            return match mark {
                None => Vec::new(),
                Some(mark) => vec![format!(
                    "the map is missing, {} were acknowledged",
                    mark.stored
                )],
            };
        };
        let mut faults = check_numbers(contents, mark.unwrap_or_default());
        let mut seen = HashSet::new();
        for entry in &contents.entries {
            seen.insert(&entry.key[..]);
            faults.extend(self.check_entry(entry, contents.applied));
        }
        for (name, key) in &self.keys {
            if !seen.contains(&name[..]) {
                faults.extend(self.check_absence(name, key, contents.applied));
            }
        }
        faults
    }

    fn check_entry(&self, entry: &Entry, applied: u64) -> Option<String> {
        let name = String::from_utf8_lossy(&entry.key);
        let version = entry.version;
        let Some(key) = self.keys.get(&entry.key) else {
            return Some(format!("the key {name} was never set"));
        };
        if version > applied {
            return Some(format!(
                "{name} has version {version}, after the last applied change {applied}"
            ));
        }
        let last = key.last(applied);
        match last {
            Some((number, id)) if number == version => {
                let same = self.sets(id, entry);
                (!same).then(|| {
                    format!("{name} with version {version} has another value than that of {id:?}")
                })
            }
            Some((number, id)) if number > version => Some(format!(
                "{name} has version {version}; change {number} of {id:?} is lost"
            )),
            _ => {
                let number = last.map_or(0, |(number, _)| number);
                let issued = key.unknown.iter().any(|id| self.sets(*id, entry));
                let free = !self.numbers.contains_key(&version);
                (!issued || !free).then(|| {
                    format!("{name} has version {version} with a value that was not set then; its last known change is {number}")
                })
            }
        }
    }

    fn sets(&self, id: Id, entry: &Entry) -> bool {
        matches!(self.workload.operation(id).change, Change::Set(value) if value == entry.value)
    }

    fn check_absence(&self, name: &[u8], key: &Key, applied: u64) -> Option<String> {
        let (number, id) = key.last(applied)?;
        let deletes = |id: Id| self.workload.operation(id).change == Change::Delete;
        let deleted_later = || {
            key.unknown
                .iter()
                .any(|later| *later > id && deletes(*later))
        };
        let lost = !deletes(id) && !deleted_later();
        lost.then(|| {
            format!(
                "{} is missing; change {number} of {id:?} set it",
                String::from_utf8_lossy(name)
            )
        })
    }
}

impl Key {
    /// The last change with a known number up to this one.
    fn last(&self, applied: u64) -> Option<(u64, Id)> {
        let after = self.known.partition_point(|(number, _)| *number <= applied);
        after.checked_sub(1).map(|index| self.known[index])
    }
}

fn check_numbers(contents: &Contents, mark: Mark) -> Vec<String> {
    let Contents {
        applied, reserved, ..
    } = *contents;
    let mut faults = Vec::new();
    if applied < mark.stored {
        faults.push(format!(
            "change {applied} is the last one applied, {} were acknowledged",
            mark.stored
        ));
    }
    if reserved < mark.answered {
        faults.push(format!(
            "numbers up to {reserved} are reserved, {} was answered",
            mark.answered
        ));
    }
    if reserved < applied {
        faults.push(format!(
            "numbers up to {reserved} are reserved, {applied} is applied"
        ));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKLOAD: Workload = Workload {
        seed: 5,
        writers: 1,
        keys: 1,
        longest: 10,
    };

    fn id(index: u64) -> Id {
        Id { writer: 0, index }
    }

    /// The indices of the first changes that set the only key, and of the first one that deletes it.
    fn sets_and_delete() -> ([u64; 2], u64) {
        let is_delete = |index: &u64| WORKLOAD.operation(id(*index)).change == Change::Delete;
        let sets: Vec<u64> = (0..).filter(|index| !is_delete(index)).take(2).collect();
        ([sets[0], sets[1]], (sets[1]..).find(is_delete).unwrap())
    }

    fn model(outcomes: &[(u64, Outcome)]) -> Model {
        let records = outcomes.iter().map(|&(index, outcome)| Record {
            id: id(index),
            outcome,
        });
        Model::new(&History {
            workload: WORKLOAD,
            records: records.collect(),
            complete: true,
        })
        .unwrap()
    }

    fn contents(applied: u64, entries: &[(u64, u64)]) -> Contents {
        let entries = entries.iter().map(|&(index, version)| {
            let operation = WORKLOAD.operation(id(index));
            let Change::Set(value) = operation.change else {
                panic!("{index} is a deletion")
            };
            Entry {
                key: operation.key,
                value,
                version,
            }
        });
        Contents {
            applied,
            reserved: 100,
            entries: entries.collect(),
        }
    }

    fn mark(stored: u64) -> Option<Mark> {
        Some(Mark {
            stored,
            answered: stored,
        })
    }

    #[test]
    fn the_map_after_each_applied_change_is_right() {
        let ([first, second], delete) = sets_and_delete();
        let outcomes = [
            (first, Outcome::Stored(1)),
            (second, Outcome::Stored(2)),
            (delete, Outcome::Stored(3)),
        ];
        let model = model(&outcomes);
        assert_eq!(model.end, mark(3).unwrap());
        assert!(model.check(Some(&contents(0, &[])), mark(0)).is_empty());
        assert!(
            model
                .check(Some(&contents(1, &[(first, 1)])), mark(1))
                .is_empty()
        );
        // A later change than the acknowledged one.
        assert!(
            model
                .check(Some(&contents(2, &[(second, 2)])), mark(1))
                .is_empty()
        );
        assert!(model.check(Some(&contents(3, &[])), mark(3)).is_empty());
    }

    #[test]
    fn a_synchronization_acknowledges_all_changes_so_far() {
        let ([first, second], _) = sets_and_delete();
        let outcomes = [
            (first, Outcome::Made(1)),
            (first, Outcome::Synced(1)),
            (second, Outcome::Made(2)),
        ];
        let end = model(&outcomes).end;
        assert_eq!((end.stored, end.answered), (1, 2));
    }

    #[test]
    fn a_lost_change_is_a_fault() {
        let ([first, second], _) = sets_and_delete();
        let model = model(&[(first, Outcome::Stored(1)), (second, Outcome::Stored(2))]);
        // In all parts.
        assert!(
            !model
                .check(Some(&contents(1, &[(first, 1)])), mark(2))
                .is_empty()
        );
        // In the entry only.
        assert!(
            !model
                .check(Some(&contents(2, &[(first, 1)])), mark(2))
                .is_empty()
        );
        assert!(!model.check(Some(&contents(2, &[])), mark(2)).is_empty());
        // In the number only.
        assert!(
            !model
                .check(Some(&contents(1, &[(second, 2)])), mark(1))
                .is_empty()
        );
        // The whole map.
        assert!(!model.check(None, mark(0)).is_empty());
        assert!(model.check(None, None).is_empty());
    }

    #[test]
    fn a_change_that_was_never_made_is_a_fault() {
        let ([first, second], _) = sets_and_delete();
        let refused = Outcome::Refused(nix::errno::Errno::ENOSPC);
        let model = model(&[(first, Outcome::Stored(1)), (second, refused)]);
        assert!(
            !model
                .check(Some(&contents(2, &[(second, 2)])), mark(1))
                .is_empty()
        );
        let mut stranger = contents(1, &[(first, 1)]);
        stranger.entries[0].value.push(0);
        assert!(!model.check(Some(&stranger), mark(1)).is_empty());
        stranger.entries[0].key.push(0);
        assert!(!model.check(Some(&stranger), mark(1)).is_empty());
    }

    #[test]
    fn an_unknown_change_may_have_been_made_or_not() {
        let ([first, second], delete) = sets_and_delete();
        let model = model(&[
            (first, Outcome::Stored(1)),
            (second, Outcome::Unknown),
            (delete, Outcome::Unknown),
        ]);
        for entries in [&[(first, 1)][..], &[(second, 2)], &[]] {
            assert!(model.check(Some(&contents(2, entries)), mark(1)).is_empty());
        }
        // Not with a number of another change.
        assert!(
            !model
                .check(Some(&contents(2, &[(second, 1)])), mark(1))
                .is_empty()
        );
    }

    #[test]
    fn a_number_is_answered_once_and_reserved() {
        let ([first, second], _) = sets_and_delete();
        let records = [first, second].map(|index| Record {
            id: id(index),
            outcome: Outcome::Made(4),
        });
        assert!(
            Model::new(&History {
                workload: WORKLOAD,
                complete: true,
                records: records.into()
            })
            .is_err()
        );
        let model = model(&[(first, Outcome::Stored(1)), (second, Outcome::Made(101))]);
        let answered = Some(Mark {
            stored: 1,
            answered: 101,
        });
        assert!(
            !model
                .check(Some(&contents(1, &[(first, 1)])), answered)
                .is_empty()
        );
    }
}
