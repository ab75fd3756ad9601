// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::parking::WakeMethod;
use crate::sync::{AtomicU32, Ordering, compiler_fence};

/// The system calls that parking needs: how to wake the peer, and an asymmetric barrier.
pub trait Waker {
    /// The cheap half of the asymmetric barrier, which both sides issue often.
    #[inline]
    fn light_barrier(&self) {
        compiler_fence(Ordering::SeqCst);
    }

    /// The expensive half: a full barrier on every processor that runs one of the two sides. Pairs with every light barrier.
    /// Returns false if the system refuses it; then it is only likely that the peer's earlier stores are visible.
    fn heavy_barrier(&self) -> bool;

    /// Wakes the peer. `wake_seq` is this side's, and has just been changed. Returns false if the peer was not reached and it may help
    /// to try again.
    fn wake(&self, method: WakeMethod, wake_seq: &AtomicU32) -> bool;
}
