// SPDX-License-Identifier: MIT OR Apache-2.0

use sluice_abi::ring;

use crate::layout::Capacity;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// struct sluice_ring_ctrl: written by one side and read by the other. All of it is atomic, including the reserved fields:
/// the peer can write to any byte at any time.
#[derive(Debug, Default)]
#[cfg_attr(not(sluice_loom), repr(C))]
pub struct Ctrl {
    pub pos: AtomicU64,
    #[cfg(not(sluice_loom))]
    reserved0: [AtomicU64; 15],
    pub wait_flags: AtomicU32,
    pub wake_seq: AtomicU32,
    pub closed: AtomicU32,
    pub wake_ack: AtomicU32,
    pub features: AtomicU32,
    #[cfg(not(sluice_loom))]
    reserved1: [AtomicU32; 27],
}

#[cfg(not(sluice_loom))]
const _: () = {
    use sluice_abi::ring::Ctrl as Abi;
    use std::mem::offset_of;
    assert!(size_of::<Ctrl>() == size_of::<Abi>());
    assert!(offset_of!(Ctrl, pos) == offset_of!(Abi, pos));
    assert!(offset_of!(Ctrl, wait_flags) == offset_of!(Abi, wait_flags));
    assert!(offset_of!(Ctrl, wake_seq) == offset_of!(Abi, wake_seq));
    assert!(offset_of!(Ctrl, closed) == offset_of!(Abi, closed));
    assert!(offset_of!(Ctrl, wake_ack) == offset_of!(Abi, wake_ack));
    assert!(offset_of!(Ctrl, features) == offset_of!(Abi, features));
};

/// How a side ended, by its `closed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Closed,
    /// It died or aborted. Only the module stores this.
    Died,
    /// The channel was destroyed. Only the module stores this.
    Destroyed,
}

impl Ctrl {
    /// Whether its owner has stored nothing yet.
    pub fn is_new(&self) -> bool {
        let words = [
            &self.wait_flags,
            &self.wake_seq,
            &self.closed,
            &self.wake_ack,
            &self.features,
        ];
        let is_zero = |word: &AtomicU32| word.load(Ordering::Relaxed) == 0;
        self.pos.load(Ordering::Relaxed) == 0 && words.into_iter().all(is_zero)
    }

    /// Closes this side, unless the module has ended it. The caller notifies the peer afterwards.
    pub fn close(&self) {
        // Pairs with the fence in end().
        let _ = self
            .closed
            .compare_exchange(0, ring::CLOSED, Ordering::Release, Ordering::Relaxed);
    }

    #[inline]
    pub fn is_closed(&self) -> bool {
        self.end().is_some()
    }

    /// How this side ended, or none. If it has ended, everything that was published before is visible.
    #[inline]
    pub fn end(&self) -> Option<End> {
        let end = match self.closed.load(Ordering::Relaxed) {
            0 => return None,
            ring::DIED => End::Died,
            ring::DESTROYED => End::Destroyed,
            _ => End::Closed,
        };
        // Pairs with the release in close(), and with that of the module.
        fence(Ordering::Acquire);
        Some(end)
    }

    /// Announces that this side issues a heavy barrier before it sleeps. Must precede all else on a new ring without a
    /// handshake.
    pub fn announce_membarrier(&self) {
        self.features.store(ring::F_MEMBARRIER, Ordering::Relaxed);
    }

    #[inline]
    pub fn has_membarrier(&self) -> bool {
        self.features.load(Ordering::Relaxed) & ring::F_MEMBARRIER != 0
    }
}

/// The shared memory of a ring. Only the producer writes the producer's `Ctrl` and the data, only the consumer writes the
/// consumer's `Ctrl`. An implementation guarantees that the memory stays mapped for its lifetime.
///
/// The peer's part may be mapped read-only. There Rust defines only relaxed atomic loads, up to the size of a pointer: for
/// acquire order a fence follows the load.
pub trait Memory {
    fn capacity(&self) -> Capacity;

    fn producer(&self) -> &Ctrl;

    fn consumer(&self) -> &Ctrl;

    /// The four bytes of the data at a position, a multiple of four, modulo the capacity.
    fn word(&self, pos: u64) -> &AtomicU32;

    /// Prefetches the line at this position.
    fn prefetch(&self, pos: u64) {
        let _ = pos;
    }

    /// Loads from the line at this position. The value means nothing: the producer may be writing it.
    fn touch(&self, pos: u64) {
        let _ = pos;
    }

    /// Zeroes all words between two positions, both multiples of eight and less than a capacity apart.
    fn zero(&self, from: u64, to: u64) {
        for pos in (from..to).step_by(size_of::<u32>()) {
            self.word(pos).store(0, Ordering::Relaxed);
        }
    }
}
