// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters and bits shared by a test and its children; they outlive killed children.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;

use super::memory::Mapping;

pub struct SharedWords {
    mapping: Mapping,
}

impl SharedWords {
    /// All zero; memory is allocated only for what is touched.
    pub fn new(count: usize) -> Result<Self> {
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
        let mapping = Mapping::with_flags(count * size_of::<AtomicU64>(), flags)?;
        Ok(SharedWords { mapping })
    }

    pub fn words(&self) -> &[AtomicU64] {
        let count = self.mapping.len() / size_of::<AtomicU64>();
        // SAFETY: page-aligned zeroed memory that lives as long as `self`; atomics may be changed by others.
        unsafe { std::slice::from_raw_parts(self.mapping.start().cast(), count) }
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
