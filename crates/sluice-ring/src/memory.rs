// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::geometry::Capacity;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// struct sluice_ring_side: what one side writes and the other reads.
#[derive(Debug)]
#[cfg_attr(not(sluice_loom), repr(C))]
pub struct Side {
    pub position: AtomicU64,
    #[cfg(not(sluice_loom))]
    reserved0: [u64; 15],
    pub waiting: AtomicU32,
    pub bell: AtomicU32,
    pub closed: AtomicU32,
    #[cfg(not(sluice_loom))]
    reserved1: [u32; 29],
}

#[cfg(not(sluice_loom))]
const _: () = {
    use sluice_abi::ring::Side as Abi;
    use std::mem::offset_of;
    assert!(size_of::<Side>() == size_of::<Abi>());
    assert!(offset_of!(Side, position) == offset_of!(Abi, position));
    assert!(offset_of!(Side, waiting) == offset_of!(Abi, waiting));
    assert!(offset_of!(Side, bell) == offset_of!(Abi, bell));
    assert!(offset_of!(Side, closed) == offset_of!(Abi, closed));
};

impl Default for Side {
    fn default() -> Self {
        Self {
            position: AtomicU64::new(0),
            #[cfg(not(sluice_loom))]
            reserved0: [0; 15],
            waiting: AtomicU32::new(0),
            bell: AtomicU32::new(0),
            closed: AtomicU32::new(0),
            #[cfg(not(sluice_loom))]
            reserved1: [0; 29],
        }
    }
}

impl Side {
    /// Nothing more comes from it. The caller wakes the other side afterwards.
    pub fn close(&self) {
        // Pairs with the acquire in is_closed: who sees this sees what was published before.
        self.closed.store(1, Ordering::Release);
    }

    #[inline]
    pub fn is_closed(&self) -> bool {
        // Pairs with the release in close.
        self.closed.load(Ordering::Acquire) != 0
    }
}

/// What both sides see of a ring. Only the producer writes the producer's side and the data, only the consumer the
/// consumer's side; each implementation answers for memory that stays what it is for as long as it lives.
pub trait Memory {
    fn capacity(&self) -> Capacity;

    fn producer(&self) -> &Side;

    fn consumer(&self) -> &Side;

    /// Four bytes of the data, at a position that is a multiple of four, modulo the capacity.
    fn word(&self, position: u64) -> &AtomicU32;

    /// Has the processor fetch the line at this position, which may be wanted next.
    fn prefetch(&self, position: u64) {
        let _ = position;
    }

    /// Makes all words from one position up to another zero, both multiples of eight and less than a capacity apart.
    fn clear(&self, from: u64, to: u64) {
        for position in (from..to).step_by(size_of::<u32>()) {
            self.word(position).store(0, Ordering::Relaxed);
        }
    }
}
