// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// The memory of a table, which stays mapped as long as the value exists.
///
/// It may be mapped read-only. There Rust defines only relaxed atomic loads, up to the size of a pointer: for acquire order a fence follows
/// the load.
///
/// Except in models, the words are at consecutive addresses, and a bucket is at a multiple of 64 bytes.
pub trait Memory {
    /// A word of a bucket: the position is a multiple of 4 below the size of the table.
    fn half(&self, at: u64) -> &AtomicU32;

    /// A word of a cell: the position is a multiple of 8 below the size of the table.
    fn word(&self, at: u64) -> &AtomicU64;

    /// Copies from the position of a word, within a cell. The bytes may be of several changes, as those of atomic loads.
    #[inline]
    fn copy(&self, mut at: u64, to: &mut [u8]) {
        // Copies of whole words are no calls.
        let mut words = to.chunks_exact_mut(size_of::<u64>());
        for bytes in &mut words {
            bytes.copy_from_slice(&self.word(at).load(Ordering::Relaxed).to_ne_bytes());
            at += size_of::<u64>() as u64;
        }
        let rest = words.into_remainder();
        if !rest.is_empty() {
            let word = self.word(at).load(Ordering::Relaxed).to_ne_bytes();
            rest.copy_from_slice(&word[..rest.len()]);
        }
    }
}
