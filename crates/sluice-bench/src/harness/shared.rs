// SPDX-License-Identifier: MIT OR Apache-2.0
//! A page of words that measured processes share, because it was mapped before they were forked.

use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use anyhow::{Context, Result};
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};

const PAGE: NonZeroUsize = NonZeroUsize::new(4096).expect("4096 is not zero");
const WORDS: usize = PAGE.get() / size_of::<AtomicU64>();

/// All words are 0 at first.
pub struct SharedWords(NonNull<[AtomicU64; WORDS]>);

impl SharedWords {
    /// As many words as share a cache line.
    pub const PER_LINE: usize = 8;

    pub fn new() -> Result<Self> {
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses aliases nothing.
        let page = unsafe { mmap_anonymous(None, PAGE, access, MapFlags::MAP_SHARED) };
        Ok(Self(page.context("cannot map a shared page")?.cast()))
    }

    pub fn word(&self, number: usize) -> &AtomicU64 {
        // SAFETY: the mapping is aligned, zeroed, as long-lived as self, and only ever used as these atomics.
        let words = unsafe { self.0.as_ref() };
        &words[number]
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        // SAFETY: nothing borrowed from the mapping outlives self.
        unsafe { munmap(self.0.cast(), PAGE.get()) }.expect("the mapping is ours");
    }
}
