// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory of a ring in one process.

use std::sync::atomic::{AtomicU32, Ordering};

use sluice_ring::{Capacity, Ctrl};

#[derive(Debug)]
pub struct Memory {
    capacity: Capacity,
    words: Vec<AtomicU32>,
    producer: Ctrl,
    consumer: Ctrl,
}

impl Memory {
    pub fn new(capacity: Capacity) -> Self {
        Self {
            capacity,
            words: (0..capacity.bytes() / 4)
                .map(|_| AtomicU32::new(0))
                .collect(),
            producer: Ctrl::default(),
            consumer: Ctrl::default(),
        }
    }

    fn word_at(&self, position: u64) -> &AtomicU32 {
        &self.words[(position % self.capacity.bytes() / 4) as usize]
    }

    /// From a position on, a multiple of 4. The rest of the last word becomes 0.
    pub fn write(&self, position: u64, bytes: &[u8]) {
        for (bytes, at) in bytes.chunks(4).zip((position..).step_by(4)) {
            let mut word = [0; 4];
            word[..bytes.len()].copy_from_slice(bytes);
            self.word_at(at)
                .store(u32::from_ne_bytes(word), Ordering::Relaxed);
        }
    }

    pub fn read(&self, position: u64, length: usize) -> Vec<u8> {
        let words = (position..).step_by(4).take(length.div_ceil(4));
        let mut bytes: Vec<u8> = words
            .flat_map(|at| self.word_at(at).load(Ordering::Relaxed).to_ne_bytes())
            .collect();
        bytes.truncate(length);
        bytes
    }

    /// What a consumer stores.
    pub fn release(&self, position: u64) {
        self.consumer.pos.store(position, Ordering::Release);
    }
}

impl sluice_ring::Memory for Memory {
    fn capacity(&self) -> Capacity {
        self.capacity
    }

    fn producer(&self) -> &Ctrl {
        &self.producer
    }

    fn consumer(&self) -> &Ctrl {
        &self.consumer
    }

    fn word(&self, position: u64) -> &AtomicU32 {
        self.word_at(position)
    }
}
