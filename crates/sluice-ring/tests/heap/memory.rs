// SPDX-License-Identifier: MIT OR Apache-2.0
//! A ring in ordinary memory, and records without zero bytes, so that stale bytes that are taken for a header are detected.

use std::sync::Arc;

use sluice_ring::sync::{AtomicU32, Ordering};
use sluice_ring::{Capacity, Consumer, Ctrl, HEADER, Memory, Producer};

/// RECORD_READY in each byte, so that it is at every possible position of a header.
const FILLER: u32 = 0x0101_0101;

const WORD: usize = size_of::<u32>();

#[derive(Debug)]
struct Heap {
    capacity: Capacity,
    /// One allocation each, because Miri checks a whole slice of atomics for each access.
    #[expect(clippy::vec_box)]
    words: Vec<Box<AtomicU32>>,
    producer: Ctrl,
    consumer: Ctrl,
}

/// Clones share the memory.
#[derive(Clone, Debug)]
pub struct View(Arc<Heap>);

impl View {
    pub fn new(bytes: u64) -> Self {
        let capacity = Capacity::exactly(bytes, 4096).expect("no such ring");
        Self(Arc::new(Heap {
            capacity,
            words: std::iter::repeat_with(Box::default)
                .take(bytes as usize / WORD)
                .collect(),
            producer: Ctrl::default(),
            consumer: Ctrl::default(),
        }))
    }

    pub fn set(&self, position: u64, word: u32) {
        self.word(position).store(word, Ordering::Relaxed);
    }

    pub fn get(&self, position: u64) -> u32 {
        self.word(position).load(Ordering::Relaxed)
    }

    /// Stores the bytes of a record, and filler up to the next word.
    pub fn put(&self, position: u64, bytes: &[u8]) {
        for (at, chunk) in (position..).step_by(WORD).zip(bytes.chunks(WORD)) {
            let mut word = [FILLER as u8; WORD];
            word[..chunk.len()].copy_from_slice(chunk);
            self.set(at, u32::from_ne_bytes(word));
        }
    }

    /// Stores filler.
    pub fn fill(&self, position: u64, length: u32) {
        for at in (position..position + u64::from(length)).step_by(WORD) {
            self.set(at, FILLER);
        }
    }

    pub fn bytes(&self, position: u64, length: u32) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length as usize + WORD);
        for at in (position..position + u64::from(length)).step_by(WORD) {
            bytes.extend_from_slice(&self.get(at).to_ne_bytes());
        }
        bytes.truncate(length as usize);
        bytes
    }
}

impl Memory for View {
    fn capacity(&self) -> Capacity {
        self.0.capacity
    }

    fn producer(&self) -> &Ctrl {
        &self.0.producer
    }

    fn consumer(&self) -> &Ctrl {
        &self.0.consumer
    }

    fn word(&self, position: u64) -> &AtomicU32 {
        &self.0.words[position as usize / WORD % self.0.words.len()]
    }
}

/// Every `of`th item under Miri, where all of them would take too long.
pub fn some<T>(all: impl Iterator<Item = T>, of: usize) -> impl Iterator<Item = T> {
    all.step_by(if cfg!(miri) { of } else { 1 })
}

/// Both sides of a ring of this capacity.
pub fn ring(bytes: u64) -> (Producer<View>, Consumer<View>) {
    let view = View::new(bytes);
    (Producer::new(view.clone()), Consumer::new(view))
}

/// The bytes of a record: its number in the first word, then filler.
pub fn content(number: u32, length: u32) -> Vec<u8> {
    let mut bytes = vec![FILLER as u8; length as usize];
    let first = bytes.len().min(WORD);
    bytes[..first].copy_from_slice(&number.to_ne_bytes()[..first]);
    bytes
}

/// Writes a record that fits, without publishing it.
pub fn write(producer: &mut Producer<View>, number: u32, length: u32) {
    let at = producer.reserve(length);
    producer.memory().put(at, &content(number, length));
    producer.write(length);
}

pub fn publish(producer: &mut Producer<View>) {
    producer.publish();
    producer.prezero();
}

/// Expects this record as the next one, and steps over it without releasing it.
pub fn take(consumer: &mut Consumer<View>, number: u32, length: u32) {
    assert_eq!(consumer.peek(), Ok(Some(length)), "record {number}");
    let bytes = consumer.memory().bytes(consumer.bytes(), length);
    assert!(bytes == content(number, length), "record {number}");
    consumer.advance(length);
}

/// The position of the state of the record with bytes at this position.
pub fn state_of(bytes: u64) -> u64 {
    bytes - HEADER + WORD as u64
}
