// SPDX-License-Identifier: MIT OR Apache-2.0
//! All interleavings of small cases, and all values that the memory model permits a load to return. Run with
//! `RUSTFLAGS="--cfg sluice_loom" cargo test --release -p sluice-table --test interleavings`.
#![cfg(sluice_loom)]

use loom::sync::Arc;
use loom::thread;
use sluice_table::sync::{AtomicU32, AtomicU64};
use sluice_table::writer::{Place, Writer};
use sluice_table::{Lookup, Memory, Reader, Shape};

/// Two blocks of the smallest cells.
const TABLE: u64 = 2 * 16 * 64;
const CELL: u32 = 64;
const BUCKET_CELLS: usize = 15;

/// The words of cells are apart from those of buckets, because loom's atomics have no common memory.
struct Words {
    halves: Vec<AtomicU32>,
    words: Vec<AtomicU64>,
}

#[derive(Clone)]
struct View(Arc<Words>);

impl View {
    fn new() -> Self {
        Self(Arc::new(Words {
            halves: (0..2 * 16).map(|_| AtomicU32::new(0)).collect(),
            words: (0..TABLE / 8).map(|_| AtomicU64::new(0)).collect(),
        }))
    }
}

impl Memory for View {
    fn half(&self, at: u64) -> &AtomicU32 {
        let block = TABLE / 2;
        &self.0.halves[(at / block * 16 + at % block / 4) as usize]
    }

    fn word(&self, at: u64) -> &AtomicU64 {
        &self.0.words[at as usize / 8]
    }
}

fn shape() -> Shape {
    Shape::new(1, TABLE, CELL).unwrap()
}

/// Keys of the same home block, for which the same cell is tried first.
fn keys(count: usize) -> Vec<[u8; 8]> {
    let is_wanted = |key: &[u8; 8]| {
        let hash = shape().hash(key);
        let first = shape().first_cell(0, hash as u32);
        shape().home(hash) == 0 && first == shape().cell(0, 0)
    };
    let keys = (0..u64::MAX).map(u64::to_ne_bytes);
    keys.filter(is_wanted).take(count).collect()
}

/// A value that is its version, which is in another word of the cell.
fn value(version: u64) -> [u8; 8] {
    version.to_ne_bytes()
}

fn insert(view: &View, key: &[u8; 8], version: u64) -> Place {
    Writer::new(view.clone(), shape()).insert(key, &value(version), version, u64::MAX)
}

/// The version of the value of a key, which is whole. None: it has no entry; the error: the table does not say.
fn get(view: &View, key: &[u8; 8]) -> Result<Option<u64>, ()> {
    let reader = Reader::new(view.clone(), shape());
    let mut room = [0; 8];
    match reader.get(key, &mut room, || 0) {
        Lookup::Value(found) => {
            assert_eq!((found.length, room), (8, value(found.version)));
            Ok(Some(found.version))
        }
        Lookup::Absent => Ok(None),
        Lookup::Ask => Err(()),
    }
}

fn explore(case: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    // As many as any seeded bug needs.
    model.preemption_bound = Some(2);
    model.check(case);
}

#[test]
fn a_value_is_of_one_change() {
    explore(|| {
        let (view, key) = (View::new(), keys(1)[0]);
        let place = insert(&view, &key, 1);
        let changes = view.clone();
        let writer = thread::spawn(move || {
            Writer::new(changes, shape()).update(place, &key, &value(2), 2);
        });
        // A second reader would change nothing for this one.
        let found = get(&view, &key);
        assert!(matches!(found, Ok(Some(1 | 2)) | Err(())), "{found:?}");
        writer.join().unwrap();
        assert_eq!(get(&view, &key), Ok(Some(2)));
    });
}

#[test]
fn a_reader_goes_forward() {
    explore(|| {
        let (view, key) = (View::new(), keys(1)[0]);
        let place = insert(&view, &key, 1);
        let changes = view.clone();
        let writer = thread::spawn(move || {
            Writer::new(changes, shape()).update(place, &key, &value(2), 2);
        });
        let found = [get(&view, &key), get(&view, &key)];
        if let [Ok(Some(first)), Ok(Some(second))] = found {
            assert!(first <= second, "{found:?}");
        }
        writer.join().unwrap();
    });
}

/// As `explore_cell`, of the cell that is tried first, and of another one.
fn explore_reuse(looks_up: usize, may_find: [Option<u64>; 2], last: Option<u64>) {
    for is_first in [true, false] {
        explore_cell(is_first, looks_up, may_find, last);
    }
}

/// The cell of the first of two keys gets the second one, with the version 2, while a reader looks up one of both. `may_find`: what it may
/// find then; `last`: what it finds at the end.
fn explore_cell(is_first: bool, looks_up: usize, may_find: [Option<u64>; 2], last: Option<u64>) {
    explore(move || {
        let (view, keys) = (View::new(), keys(3));
        let (key, after) = (keys[looks_up], keys[1]);
        if !is_first {
            insert(&view, &keys[2], 1);
        }
        let place = insert(&view, &keys[0], 1);
        let changes = view.clone();
        let writer = thread::spawn(move || {
            Writer::new(changes.clone(), shape()).remove(place);
            assert_eq!(insert(&changes, &after, 2), place);
        });
        let found = get(&view, &key);
        assert!(
            found.is_err() || may_find.map(Ok).contains(&found),
            "{found:?}"
        );
        if looks_up == 0 && found == Ok(None) {
            assert_ne!(get(&view, &key), Ok(Some(1)));
        }
        writer.join().unwrap();
        assert_eq!(get(&view, &key), Ok(last));
    });
}

#[test]
fn a_cell_that_is_used_again_has_no_value_of_the_former_key() {
    explore_reuse(0, [Some(1), None], None);
}

#[test]
fn a_cell_that_is_used_again_has_the_value_of_its_key() {
    explore_reuse(1, [Some(2), None], Some(2));
}

#[test]
fn a_lookup_after_an_absence_is_as_new() {
    explore(|| {
        let (view, keys) = (View::new(), keys(2));
        let (removed, updated) = (keys[0], keys[1]);
        let places = [&removed, &updated].map(|key| insert(&view, key, 1));
        let changes = view.clone();
        let writer = thread::spawn(move || {
            let writer = Writer::new(changes, shape());
            writer.update(places[1], &updated, &value(2), 2);
            writer.remove(places[0]);
        });
        if get(&view, &removed) == Ok(None) {
            assert_ne!(get(&view, &updated), Ok(Some(1)));
        }
        writer.join().unwrap();
    });
}

#[test]
fn an_entry_that_is_elsewhere_is_never_absent() {
    explore(|| {
        let (view, keys) = (View::new(), keys(BUCKET_CELLS + 1));
        let places: Vec<Place> = keys.iter().map(|key| insert(&view, key, 1)).collect();
        let (last, other) = (keys[BUCKET_CELLS], places[0]);
        let changes = view.clone();
        let writer = thread::spawn(move || Writer::new(changes, shape()).remove(other));
        assert_eq!(get(&view, &last), Ok(Some(1)));
        writer.join().unwrap();
        assert_eq!(get(&view, &last), Ok(Some(1)));
    });
}

#[test]
fn a_key_is_absent_only_after_its_removal() {
    explore(|| {
        let (view, keys) = (View::new(), keys(BUCKET_CELLS + 1));
        let places: Vec<Place> = keys[1..].iter().map(|key| insert(&view, key, 1)).collect();
        // Not in the first cell, of which `explore_cell` tries everything.
        let (moved, place, last) = (keys[2], places[1], keys[0]);
        let changes = view.clone();
        // The key goes from its home block to the next one: its cell there has another key meanwhile.
        let writer = thread::spawn(move || {
            Writer::new(changes.clone(), shape()).remove(place);
            insert(&changes, &last, 2);
            insert(&changes, &moved, 3);
        });
        if get(&view, &moved) == Ok(None) {
            assert_ne!(get(&view, &moved), Ok(Some(1)));
        }
        writer.join().unwrap();
        assert_eq!(get(&view, &moved), Ok(Some(3)));
        assert_eq!(get(&view, &last), Ok(Some(2)));
    });
}
