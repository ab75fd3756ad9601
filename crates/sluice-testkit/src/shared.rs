// SPDX-License-Identifier: MIT OR Apache-2.0
//! A page of words that measured processes share, mapped before they are forked.

use std::num::NonZeroUsize;
use std::sync::atomic::AtomicU64;

use anyhow::Result;

use crate::shared_memory::SharedMemory;

const PAGE: NonZeroUsize = NonZeroUsize::new(4096).expect("4096 is not zero");

/// All words are initially 0.
pub struct SharedWords(SharedMemory);

impl SharedWords {
    /// Words per cache line.
    pub const PER_LINE: usize = 8;

    pub fn new() -> Result<Self> {
        SharedMemory::anonymous(PAGE).map(Self)
    }

    /// Makes the words read-only in this process.
    pub fn make_read_only(&self) -> Result<()> {
        self.0.make_read_only()
    }

    pub fn word(&self, number: usize) -> &AtomicU64 {
        let word = self.0.at(number * size_of::<AtomicU64>()).cast();
        // SAFETY: the mapping is aligned, zeroed, as long-lived as self, and only ever used as these atomics; the last one
        // ends with it.
        unsafe { word.as_ref() }
    }
}
