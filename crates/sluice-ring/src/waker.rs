// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::parking::WakeMethod;
use crate::sync::{AtomicU32, Ordering, compiler_fence};

/// The system calls of parking: waking the peer, and an asymmetric barrier.
pub trait Waker {
    /// The cheap half of the asymmetric barrier, issued per notification.
    #[inline]
    fn light_barrier(&self) {
        compiler_fence(Ordering::SeqCst);
    }

    /// The expensive half: a full barrier on every processor that runs one of the two sides. Pairs with every light barrier.
    /// Returns false if the system call fails; then the visibility of the peer's earlier stores is only likely.
    fn heavy_barrier(&self) -> bool;

    /// Wakes the peer. `wake_seq` is this side's, and has just been changed. Returns false if the wake-up was not delivered
    /// and a retry may help.
    fn wake(&self, method: WakeMethod, wake_seq: &AtomicU32) -> bool;
}
