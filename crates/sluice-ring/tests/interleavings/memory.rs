// SPDX-License-Identifier: MIT OR Apache-2.0
//! The shared memory of a ring, with what the kernel has of each side.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use sluice_ring::sync::{AtomicU32, Ordering};
use sluice_ring::{Capacity, Ctrl, Memory};

use super::kernel::{Endpoint, Futex, Processor};

pub struct Ring {
    words: Vec<AtomicU32>,
    /// One per word, for loom to check that no record's bytes are written while they may still be read, and vice versa. The
    /// words are atomics, because they are also states, and loom does not check these.
    turns: Vec<UnsafeCell<()>>,
    pub producer: Side,
    pub consumer: Side,
    pub futex: Futex,
}

#[derive(Default)]
pub struct Side {
    pub ctrl: Ctrl,
    pub processor: Processor,
    pub endpoint: Endpoint,
}

// SAFETY: the only fields that are not atomic have type ().
unsafe impl Send for Ring {}
// SAFETY: as above.
unsafe impl Sync for Ring {}

#[derive(Clone)]
pub struct View(pub Arc<Ring>);

impl View {
    pub fn new(capacity: u64) -> Self {
        Self(Arc::new(Ring {
            words: (0..capacity / 4).map(|_| AtomicU32::new(0)).collect(),
            turns: (0..capacity / 4).map(|_| UnsafeCell::new(())).collect(),
            producer: Side::default(),
            consumer: Side::default(),
            futex: Futex::default(),
        }))
    }

    fn index(&self, position: u64) -> usize {
        (position / 4 % self.0.words.len() as u64) as usize
    }

    pub fn fill(&self, position: u64, word: u32) {
        let index = self.index(position);
        self.0.turns[index].with_mut(|_| ());
        self.0.words[index].store(word, Ordering::Relaxed);
    }

    pub fn read(&self, position: u64) -> u32 {
        let index = self.index(position);
        self.0.turns[index].with(|_| ());
        self.0.words[index].load(Ordering::Relaxed)
    }
}

impl Memory for View {
    fn capacity(&self) -> Capacity {
        Capacity::tiny(self.0.words.len() as u64 * 4)
    }

    fn producer(&self) -> &Ctrl {
        &self.0.producer.ctrl
    }

    fn consumer(&self) -> &Ctrl {
        &self.0.consumer.ctrl
    }

    fn word(&self, position: u64) -> &AtomicU32 {
        &self.0.words[self.index(position)]
    }
}
