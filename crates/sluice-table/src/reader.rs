// SPDX-License-Identifier: MIT OR Apache-2.0

use sluice_abi::map::{BUCKET_CELLS, CELL_ASK};

use crate::memory::Memory;
use crate::shape::{
    ELSEWHERE, EXPIRES, KEY, LENGTHS, Shape, VERSION, WORD, lengths_of, padded, tag_of,
};
use crate::sync::{Ordering, fence, spin_loop};
use crate::tags;

/// How often a reader repeats what it has read of a cell that changes. A change takes less time than some attempts, unless its process is
/// preempted.
const ATTEMPTS: u32 = if cfg!(sluice_loom) { 1 } else { 16 };

/// What a table says about a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    Value(Value),
    /// The key has no entry.
    Absent,
    /// The table does not say: the key may have no cell, the value does not fit into it, it changes all the time, or its time has passed.
    Ask,
}

/// A value that was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// In bytes. A value that exceeds the room is not copied.
    pub length: u32,
    pub version: u64,
    /// CLOCK_BOOTTIME in ns, or the greatest number: it does not expire.
    pub expires_ns: u64,
    cell: u64,
    sequence: u64,
}

/// What a cell has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// An entry, whose key was copied. Without a value: it is not in the cell.
    Entry(Option<Value>),
    Free,
    /// It changes all the time.
    Busy,
}

/// Reads a table.
#[derive(Debug)]
pub struct Reader<M> {
    memory: M,
    shape: Shape,
}

/// What one attempt has read of a cell.
enum Attempt {
    Value(u32),
    Whole(Content),
    /// The lengths are none of a cell: it was being changed.
    Torn,
}

impl<M: Memory> Reader<M> {
    /// The memory has the size that the shape says.
    pub fn new(memory: M, shape: Shape) -> Self {
        Self { memory, shape }
    }

    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Copies the value of a key, if it fits into the room. `now`: CLOCK_BOOTTIME in ns.
    #[inline]
    pub fn get(&self, key: &[u8], room: &mut [u8], now: impl FnOnce() -> u64) -> Lookup {
        // What this thread has read before, also by a call, is not newer than what it loads now.
        fence(Ordering::Acquire);
        let hash = self.shape.hash(key);
        let (home, tag) = (self.shape.home(hash), tag_of(hash));
        tags::prefetch(&self.memory, self.shape.bucket(home));
        let first = self.find_first(self.shape.first_cell(home, tag), key, room);
        let found = first.map_or_else(|| self.find(home, tag, key, room), Lookup::Value);
        match found {
            Lookup::Value(value) if value.has_expired(now) => Lookup::Ask,
            found => found,
        }
    }

    /// Looks the key up by the tags of the buckets.
    fn find(&self, home: u64, tag: u32, key: &[u8], room: &mut [u8]) -> Lookup {
        let mut blocks = self.shape.probes(home);
        let mut found = blocks
            .next()
            .and_then(|block| self.find_in(block, tag, key, room));
        if found.is_none() {
            if self.elsewhere(home) == 0 {
                // What this thread reads later is not older.
                fence(Ordering::Acquire);
                return Lookup::Absent;
            }
            found = blocks.find_map(|block| self.find_in(block, tag, key, room));
        }
        found.unwrap_or(Lookup::Ask)
    }

    /// Whether nothing has changed the value since it was copied.
    #[inline]
    pub fn is_current(&self, value: &Value) -> bool {
        // What the caller loads later is not older than this.
        let is_same = self.load(value.cell) == value.sequence;
        fence(Ordering::Acquire);
        is_same
    }

    /// Copies the entry of a cell. The position is that of a cell.
    pub fn read_cell(&self, cell: u64, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Content {
        self.read(cell, |[value_length, key_length]| {
            if key_length == 0 {
                return Attempt::Whole(Content::Free);
            }
            let Some(at) = self.checked(value_length, key_length) else {
                return Attempt::Torn;
            };
            key.resize(key_length as usize, 0);
            self.memory.copy(cell + KEY, key);
            if value_length == CELL_ASK {
                return Attempt::Whole(Content::Entry(None));
            }
            value.resize(value_length as usize, 0);
            self.memory.copy(cell + at, value);
            Attempt::Value(value_length)
        })
    }

    /// The positions of the cells of a block that may have an entry.
    pub fn used_cells(&self, block: u64) -> impl Iterator<Item = u64> {
        let free = tags::equal(&self.memory, self.shape.bucket(block), 0);
        (0..BUCKET_CELLS as u64)
            .filter(move |index| free >> index & 1 == 0)
            .map(move |index| self.shape.cell(block, index))
    }

    #[inline]
    fn load(&self, at: u64) -> u64 {
        self.memory.word(at).load(Ordering::Relaxed)
    }

    fn elsewhere(&self, home: u64) -> u32 {
        let at = self.shape.bucket(home) + ELSEWHERE;
        self.memory.half(at).load(Ordering::Relaxed)
    }

    /// The value of a key in this cell, by one attempt and without the bucket: a cell that has a key has its entry. Most entries are in the
    /// cell that was tried first for them, so that usually one cache miss suffices.
    #[inline]
    fn find_first(&self, cell: u64, key: &[u8], room: &mut [u8]) -> Option<Value> {
        match self.read_once(cell, &mut self.value_of(cell, key, room))? {
            Content::Entry(value) => value,
            Content::Free | Content::Busy => None,
        }
    }

    /// None: the key is not in this block.
    fn find_in(&self, block: u64, tag: u32, key: &[u8], room: &mut [u8]) -> Option<Lookup> {
        let mut equal = tags::equal(&self.memory, self.shape.bucket(block), tag);
        while equal != 0 {
            let cell = self.shape.cell(block, equal.trailing_zeros().into());
            let found = self.read_of(cell, key, room);
            if found.is_some() {
                return found;
            }
            equal &= equal - 1;
        }
        None
    }

    /// None: the cell has another key.
    #[inline]
    fn read_of(&self, cell: u64, key: &[u8], room: &mut [u8]) -> Option<Lookup> {
        match self.read(cell, self.value_of(cell, key, room)) {
            Content::Entry(Some(value)) => Some(Lookup::Value(value)),
            Content::Entry(None) | Content::Busy => Some(Lookup::Ask),
            Content::Free => None,
        }
    }

    /// Copies the value of a cell that has this key. `Free`: it has another one, or none.
    #[inline]
    fn value_of(&self, cell: u64, key: &[u8], room: &mut [u8]) -> impl FnMut([u32; 2]) -> Attempt {
        move |[value_length, key_length]| {
            if key_length as usize != key.len() || !self.has_key(cell, key) {
                return Attempt::Whole(Content::Free);
            }
            if value_length == CELL_ASK {
                return Attempt::Whole(Content::Entry(None));
            }
            let Some(at) = self.checked(value_length, key_length) else {
                return Attempt::Torn;
            };
            if let Some(room) = room.get_mut(..value_length as usize) {
                self.memory.copy(cell + at, room);
            }
            Attempt::Value(value_length)
        }
    }

    /// Reads a cell until nothing has changed it meanwhile.
    #[inline]
    fn read(&self, cell: u64, mut content: impl FnMut([u32; 2]) -> Attempt) -> Content {
        for _ in 0..ATTEMPTS {
            if let Some(content) = self.read_once(cell, &mut content) {
                return content;
            }
            spin_loop();
        }
        Content::Busy
    }

    /// None: something has changed it meanwhile.
    #[inline]
    fn read_once(
        &self,
        cell: u64,
        content: &mut impl FnMut([u32; 2]) -> Attempt,
    ) -> Option<Content> {
        let (mut value, attempt) = self.attempt(cell, content);
        if value.sequence % 2 != 0 || self.load(cell) != value.sequence {
            return None;
        }
        match attempt {
            Attempt::Value(length) => {
                value.length = length;
                Some(Content::Entry(Some(value)))
            }
            Attempt::Whole(content) => Some(content),
            Attempt::Torn => None,
        }
    }

    /// Reads a cell between two loads of its sequence, of which the caller makes the second.
    #[inline]
    fn attempt(
        &self,
        cell: u64,
        content: &mut impl FnMut([u32; 2]) -> Attempt,
    ) -> (Value, Attempt) {
        let sequence = self.load(cell);
        // (map-M): pairs with the release of the sequence after a change.
        fence(Ordering::Acquire);
        let value = Value {
            length: 0,
            version: self.load(cell + VERSION),
            expires_ns: self.load(cell + EXPIRES),
            cell,
            sequence,
        };
        let attempt = content(lengths_of(self.load(cell + LENGTHS)));
        // (map-M): pairs with the release fence before a change.
        fence(Ordering::Acquire);
        (value, attempt)
    }

    /// Where the value begins, if the lengths are those of an entry in a cell.
    #[inline]
    fn checked(&self, value_length: u32, key_length: u32) -> Option<u64> {
        let at = self.shape.value_at(key_length as usize)?;
        let fits =
            value_length == CELL_ASK || at + u64::from(value_length) <= self.shape.cell_size();
        fits.then_some(at)
    }

    /// Whether the cell has this key, whose length is the same and fits.
    #[inline]
    fn has_key(&self, cell: u64, key: &[u8]) -> bool {
        let Some(_) = self.shape.value_at(key.len()) else {
            return false;
        };
        let (mut at, mut rest) = (cell + KEY, key);
        while let Some((word, after)) = rest.split_first_chunk() {
            if self.load(at) != u64::from_ne_bytes(*word) {
                return false;
            }
            at += WORD;
            rest = after;
        }
        rest.is_empty() || self.load(at) == padded(rest)
    }
}

impl Value {
    /// Whether its time has passed. `now`: CLOCK_BOOTTIME in ns.
    #[inline]
    pub fn has_expired(&self, now: impl FnOnce() -> u64) -> bool {
        self.expires_ns != u64::MAX && self.expires_ns <= now()
    }
}
