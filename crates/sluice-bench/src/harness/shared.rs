// SPDX-License-Identifier: MIT OR Apache-2.0
//! A page of words that measured processes share, because it was mapped before they were forked.

use std::num::NonZeroUsize;
use std::sync::atomic::AtomicU64;

use anyhow::Result;

use super::shared_memory::SharedMemory;

const PAGE: NonZeroUsize = NonZeroUsize::new(4096).expect("4096 is not zero");

/// All words are 0 at first.
pub struct SharedWords(SharedMemory);

impl SharedWords {
    /// As many words as share a cache line.
    pub const PER_LINE: usize = 8;

    pub fn new() -> Result<Self> {
        SharedMemory::nameless(PAGE).map(Self)
    }

    /// From now on this process cannot write to them.
    pub fn only_read(&self) -> Result<()> {
        self.0.only_read()
    }

    pub fn word(&self, number: usize) -> &AtomicU64 {
        let word = self.0.at(number * size_of::<AtomicU64>()).cast();
        // SAFETY: the mapping is aligned, zeroed, as long-lived as self, and only ever used as these atomics; the last one
        // ends with it.
        unsafe { word.as_ref() }
    }
}
