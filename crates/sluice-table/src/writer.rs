// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes a table as the module does (kernel/map_mapped.c), for tests and measurements: processes cannot.

use sluice_abi::map::{BUCKET_CELLS, CELL_ASK};

use crate::memory::Memory;
use crate::shape::{
    ELSEWHERE, EXPIRES, KEY, LENGTHS, Shape, VERSION, WORD, first_of, lengths, lengths_of, padded,
    tag_of,
};
use crate::sync::{Ordering, fence};

/// Writes a table. One thread at a time changes an entry.
#[derive(Debug)]
pub struct Writer<M> {
    memory: M,
    shape: Shape,
}

/// Where an entry is: the position of its cell, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    home: u64,
    cell: Option<(u64, u64)>,
}

impl<M: Memory> Writer<M> {
    pub fn new(memory: M, shape: Shape) -> Self {
        Self { memory, shape }
    }

    /// Inserts an entry.
    pub fn insert(&self, key: &[u8], value: &[u8], version: u64, expires_ns: u64) -> Place {
        let place = self.place(key);
        self.change(place, || self.store(place, key, value, version, expires_ns));
        place
    }

    /// Replaces a value.
    pub fn update(&self, place: Place, key: &[u8], value: &[u8], version: u64) {
        self.change(place, || self.store(place, key, value, version, u64::MAX));
    }

    pub fn remove(&self, place: Place) {
        self.change(place, || self.clear(place));
        if let Some((block, index)) = place.cell {
            let tag = self.memory.half(self.shape.tag(block, index));
            tag.store(0, Ordering::Release);
        }
        if place.is_elsewhere() {
            self.elsewhere(place.home).fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn place(&self, key: &[u8]) -> Place {
        let hash = self.shape.hash(key);
        let home = self.shape.home(hash);
        let fits = self.shape.value_at(key.len()).is_some();
        let mut blocks = self.shape.probes(home).filter(|_| fits);
        let cell = blocks.find_map(|block| self.take_cell(block, tag_of(hash)));
        let place = Place { home, cell };
        if place.is_elsewhere() {
            self.elsewhere(home).fetch_add(1, Ordering::Relaxed);
        }
        place
    }

    fn take_cell(&self, block: u64, tag: u32) -> Option<(u64, u64)> {
        let take = |index: &u64| {
            let half = self.memory.half(self.shape.tag(block, *index));
            half.compare_exchange(0, tag, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        };
        let cells = BUCKET_CELLS as u64;
        let mut indexes = (0..cells).map(|index| (first_of(tag) + index) % cells);
        indexes.find(take).map(|index| (block, index))
    }

    fn elsewhere(&self, home: u64) -> &crate::sync::AtomicU32 {
        self.memory.half(self.shape.bucket(home) + ELSEWHERE)
    }

    fn cell(&self, place: Place) -> Option<u64> {
        place
            .cell
            .map(|(block, index)| self.shape.cell(block, index))
    }

    /// (map-M)
    fn change(&self, place: Place, content: impl FnOnce()) {
        let Some(cell) = self.cell(place) else { return };
        let sequence = self.memory.word(cell).load(Ordering::Relaxed);
        self.memory
            .word(cell)
            .store(sequence.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        content();
        self.memory
            .word(cell)
            .store(sequence.wrapping_add(2), Ordering::Release);
    }

    fn store(&self, place: Place, key: &[u8], value: &[u8], version: u64, expires_ns: u64) {
        let (Some(cell), Some(at)) = (self.cell(place), self.shape.value_at(key.len())) else {
            return;
        };
        let fits = at + value.len() as u64 <= self.shape.cell_size();
        let before = self.end_of(cell);
        let length = if fits { value.len() as u32 } else { CELL_ASK };
        self.put(cell + VERSION, version);
        self.put(cell + EXPIRES, expires_ns);
        self.put(cell + LENGTHS, lengths(length, key.len() as u16));
        self.put_bytes(cell + KEY, key);
        if fits {
            self.put_bytes(cell + at, value);
        }
        let end = self.end_of(cell).next_multiple_of(WORD);
        for at in (end..before).step_by(WORD as usize) {
            self.put(cell + at, 0);
        }
    }

    fn clear(&self, place: Place) {
        let Some(cell) = self.cell(place) else { return };
        for at in (VERSION..self.end_of(cell)).step_by(WORD as usize) {
            self.put(cell + at, 0);
        }
    }

    /// Where the content of a cell ends.
    fn end_of(&self, cell: u64) -> u64 {
        let word = self.memory.word(cell + LENGTHS).load(Ordering::Relaxed);
        let [value, key] = lengths_of(word);
        let value = if value == CELL_ASK { 0 } else { value };
        KEY + (u64::from(key).next_multiple_of(WORD)) + u64::from(value)
    }

    fn put(&self, at: u64, word: u64) {
        self.memory.word(at).store(word, Ordering::Relaxed);
    }

    fn put_bytes(&self, at: u64, bytes: &[u8]) {
        for (number, word) in bytes.chunks(WORD as usize).enumerate() {
            self.put(at + number as u64 * WORD, padded(word));
        }
    }
}

impl Place {
    fn is_elsewhere(&self) -> bool {
        self.cell.is_none_or(|(block, _)| block != self.home)
    }
}
