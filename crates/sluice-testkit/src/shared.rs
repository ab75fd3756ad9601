// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters and bits shared by a test and its children; they outlive killed children.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};

use crate::shared_memory::SharedMemory;

pub struct SharedWords {
    memory: SharedMemory,
    count: usize,
}

// SAFETY: threads access the words as the atomics that they are, as processes do.
unsafe impl Sync for SharedWords {}

impl SharedWords {
    /// Words per cache line.
    pub const PER_LINE: usize = 8;

    /// All are initially 0.
    pub fn new(count: usize) -> Result<Self> {
        let len = NonZeroUsize::new(count * size_of::<AtomicU64>());
        let memory = SharedMemory::anonymous(len.context("no words to share")?)?;
        Ok(Self { memory, count })
    }

    /// Makes the words read-only in this process.
    pub fn make_read_only(&self) -> Result<()> {
        self.memory.make_read_only()
    }

    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is aligned, zeroed, as long-lived as self, and only ever used as these atomics.
        unsafe { std::slice::from_raw_parts(self.memory.at(0).cast().as_ptr(), self.count) }
    }

    pub fn get(&self, index: usize) -> u64 {
        self.words()[index].load(Ordering::SeqCst)
    }

    pub fn set(&self, index: usize, value: u64) {
        self.words()[index].store(value, Ordering::SeqCst);
    }

    /// Sets one bit and returns whether it was set before.
    pub fn mark(&self, bit: usize) -> bool {
        let mask = 1 << (bit % 64);
        self.words()[bit / 64].fetch_or(mask, Ordering::Relaxed) & mask != 0
    }

    pub fn is_marked(&self, bit: usize) -> bool {
        self.words()[bit / 64].load(Ordering::Relaxed) & 1 << (bit % 64) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bit_is_new_only_once() {
        let shared = SharedWords::new(4).expect("mapping");
        assert!(!shared.mark(70));
        assert!(shared.mark(70));
        assert!(shared.is_marked(70) && !shared.is_marked(71));
    }
}
