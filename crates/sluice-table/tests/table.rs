// SPDX-License-Identifier: MIT OR Apache-2.0
//! One thread at a time: what a reader finds after changes, against a map of the standard library.
#![cfg(not(sluice_loom))]

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64};

use sluice_table::writer::{Place, Writer};
use sluice_table::{Content, Lookup, Memory, Reader, Shape};

struct Heap(Vec<AtomicU64>);

impl Heap {
    fn new(shape: &Shape) -> Self {
        let words = (0..shape.table() / 8).map(|_| AtomicU64::new(0));
        Self(words.collect())
    }
}

impl Memory for &Heap {
    fn half(&self, at: u64) -> &AtomicU32 {
        let word: *const AtomicU64 = &self.0[at as usize / 8];
        // SAFETY: a half of a word that lives as long as the memory.
        unsafe { &*word.cast::<AtomicU32>().add(at as usize / 4 % 2) }
    }

    fn word(&self, at: u64) -> &AtomicU64 {
        &self.0[at as usize / 8]
    }
}

const NOW: u64 = 1000;

fn get(reader: &Reader<&Heap>, key: &[u8]) -> (Lookup, Vec<u8>) {
    let mut room = vec![0; 256];
    let lookup = reader.get(key, &mut room, || NOW);
    if let Lookup::Value(value) = lookup {
        room.truncate(value.length as usize);
    }
    (lookup, room)
}

/// Returns whether the table has answered.
fn check(reader: &Reader<&Heap>, key: &[u8], expected: Option<&Vec<u8>>) -> bool {
    match (get(reader, key), expected) {
        ((Lookup::Value(_), value), Some(expected)) => assert_eq!(&value, expected, "{key:?}"),
        ((Lookup::Absent, _), None) => {}
        ((Lookup::Ask, _), _) => return false,
        (found, expected) => panic!("{key:?}: {found:?} instead of {expected:?}"),
    }
    true
}

#[test]
fn a_reader_finds_what_is_there() {
    for (entries, cell, seed) in [(10, 128, 1), (1000, 128, 2), (20_000, 256, 3)] {
        let table = Shape::table_for(entries, cell).unwrap();
        let shape = Shape::new(seed, table, cell).unwrap();
        let heap = Heap::new(&shape);
        let (writer, reader) = (Writer::new(&heap, shape), Reader::new(&heap, shape));
        let mut random = fastrand::Rng::with_seed(seed);
        let mut all: HashMap<Vec<u8>, (Place, Vec<u8>)> = HashMap::new();
        let (mut answered, mut asked) = (0, 0);
        for version in 1..=entries * 6 {
            // Up to a third more keys than there is room for.
            let number = random.u64(..entries * 4 / 3);
            let key = format!("{number:0width$}", width = 1 + number as usize % 30).into_bytes();
            let value = vec![random.u8(..); random.usize(..cell as usize / 2)];
            match all.get_mut(&key) {
                Some((place, _)) if random.u8(..3) == 0 => {
                    writer.remove(*place);
                    all.remove(&key);
                }
                Some((place, old)) => {
                    writer.update(*place, &key, &value, version);
                    *old = value;
                }
                None => {
                    let place = writer.insert(&key, &value, version, u64::MAX);
                    all.insert(key.clone(), (place, value));
                }
            }
            let expected = all.get(&key).map(|(_, value)| value);
            match check(&reader, &key, expected) {
                true => answered += 1,
                false => asked += 1,
            }
        }
        for (key, (_, value)) in &all {
            check(&reader, key, Some(value));
        }
        assert!(answered > 4 * asked, "{answered} answered, {asked} asked");
        for (place, _) in all.values() {
            writer.remove(*place);
        }
        // Nothing is left, but for sequences.
        let left: u64 = (0..shape.table())
            .step_by(8)
            .filter(|at| at % u64::from(cell) != 0 || *at % (u64::from(cell) * 16) == 0)
            .map(|at| (&&heap).word(at).load(std::sync::atomic::Ordering::Relaxed))
            .sum();
        assert_eq!(left, 0);
    }
}

#[test]
fn what_has_no_room_is_asked_for() {
    let shape = Shape::new(7, 4096, 64).unwrap();
    let heap = Heap::new(&shape);
    let (writer, reader) = (Writer::new(&heap, shape), Reader::new(&heap, shape));
    writer.insert(b"long value", &[1; 64], 1, u64::MAX);
    assert_eq!(get(&reader, b"long value").0, Lookup::Ask);
    let long_key = writer.insert(&[b'k'; 64], b"v", 2, u64::MAX);
    assert_eq!(get(&reader, &[b'k'; 64]).0, Lookup::Ask);
    writer.remove(long_key);
    assert_eq!(get(&reader, &[b'k'; 64]).0, Lookup::Absent);
    // All cells: 4 blocks of 15, of which one has an entry.
    let keys: Vec<String> = (0..80).map(|number| number.to_string()).collect();
    let places: Vec<_> = keys
        .iter()
        .map(|key| writer.insert(key.as_bytes(), b"v", 3, u64::MAX))
        .collect();
    let lookups = keys.iter().map(|key| get(&reader, key.as_bytes()).0);
    let found = lookups
        .filter(|found| matches!(found, Lookup::Value(_)))
        .count();
    assert_eq!(found, 59);
    assert_eq!(get(&reader, b"absent").0, Lookup::Ask);
    for place in places {
        writer.remove(place);
    }
    assert_eq!(get(&reader, b"absent").0, Lookup::Absent);
}

#[test]
fn the_kernel_decides_about_a_time_that_has_passed() {
    let shape = Shape::new(7, 4096, 128).unwrap();
    let heap = Heap::new(&shape);
    let (writer, reader) = (Writer::new(&heap, shape), Reader::new(&heap, shape));
    for (key, expires) in [("before", NOW - 1), ("now", NOW), ("after", NOW + 1)] {
        writer.insert(key.as_bytes(), b"v", 1, expires);
    }
    assert_eq!(get(&reader, b"before").0, Lookup::Ask);
    assert_eq!(get(&reader, b"now").0, Lookup::Ask);
    assert!(matches!(get(&reader, b"after").0, Lookup::Value(_)));
}

#[test]
fn a_value_is_current_until_it_changes() {
    let shape = Shape::new(7, 4096, 128).unwrap();
    let heap = Heap::new(&shape);
    let (writer, reader) = (Writer::new(&heap, shape), Reader::new(&heap, shape));
    let place = writer.insert(b"a", b"1", 1, u64::MAX);
    let current = |reader: &Reader<&Heap>| match get(reader, b"a").0 {
        Lookup::Value(value) => value,
        other => panic!("{other:?}"),
    };
    let value = current(&reader);
    assert!(reader.is_current(&value));
    writer.update(place, b"a", b"1", 2);
    assert!(!reader.is_current(&value));
    let value = current(&reader);
    assert_eq!(value.version, 2);
    writer.remove(place);
    assert!(!reader.is_current(&value));
}

#[test]
fn all_entries_are_in_their_cells() {
    let shape = Shape::new(7, Shape::table_for(100, 64).unwrap(), 64).unwrap();
    let heap = Heap::new(&shape);
    let (writer, reader) = (Writer::new(&heap, shape), Reader::new(&heap, shape));
    for number in 0..100_u64 {
        writer.insert(&number.to_ne_bytes(), &[number as u8; 9], number, u64::MAX);
    }
    let (mut key, mut value, mut found) = (Vec::new(), Vec::new(), 0);
    for block in 0..shape.blocks() {
        for cell in reader.used_cells(block) {
            let content = reader.read_cell(cell, &mut key, &mut value);
            let number = u64::from_ne_bytes(key[..].try_into().unwrap());
            assert_eq!(value, [number as u8; 9]);
            assert!(matches!(content, Content::Entry(Some(value)) if value.version == number));
            found += 1;
        }
    }
    assert_eq!(found, 100);
}

/// The examples of docs/abi/map-mapped.md.
#[test]
#[cfg(target_endian = "little")]
fn the_hash_is_that_of_the_page() {
    let shape = Shape::new(1, 4096, 64).unwrap();
    assert_eq!(shape.hash(b"sluice"), 0x2e7c98e197767baf);
    assert_eq!(shape.hash(b"0123456789abcdef"), 0x0942710339bf9b93);
}

#[test]
fn sizes_that_no_table_has_are_refused() {
    for (table, cell) in [
        (4096, 32),
        (4096, 96),
        (4096, 8192),
        (512, 64),
        (5000, 64),
        (0, 64),
        (4096, 0),
    ] {
        assert_eq!(Shape::new(1, table, cell), None, "{table} {cell}");
    }
    assert_eq!(
        Shape::new(1, 4096, 256).map(|shape| shape.table()),
        Some(4096)
    );
    assert_eq!(Shape::table_for(0, 128), Some(2048));
    assert_eq!(Shape::table_for(100_000, 128), Some(16384 * 2048));
    assert_eq!(Shape::table_for(u64::MAX, 128), None);
}

/// A sequence wraps around, and is looked at for its lowest bit and for equality only.
#[test]
fn a_sequence_goes_around_its_end() {
    use std::sync::atomic::Ordering;

    for end in [1_u64 << 32, 1 << 63, 0] {
        let shape = Shape::new(7, 4096, 128).unwrap();
        let heap = Heap::new(&shape);
        for at in (0..shape.table())
            .step_by(128)
            .filter(|at| at % (128 * 16) != 0)
        {
            (&&heap)
                .word(at)
                .store(end.wrapping_sub(20), Ordering::Relaxed);
        }
        let (writer, reader) = (Writer::new(&heap, shape), Reader::new(&heap, shape));
        let place = writer.insert(b"key", b"0", u64::MAX - 40, u64::MAX);
        for number in 1..40_u64 {
            let value = number.to_string().into_bytes();
            writer.update(place, b"key", &value, u64::MAX - 40 + number);
            let (found, bytes) = get(&reader, b"key");
            let Lookup::Value(found) = found else {
                panic!("{found:?} after {number} changes");
            };
            assert_eq!((bytes, found.version), (value, u64::MAX - 40 + number));
        }
        writer.remove(place);
        assert!(matches!(get(&reader, b"key").0, Lookup::Absent));
    }
}
