// SPDX-License-Identifier: MIT OR Apache-2.0
//! How one side sleeps without missing a wake-up, and how the other notifies it.
//!
//! ```text
//! Parker                                Notifier
//!   seq = peer's wake_seq                 publish, release or close
//!   own wait_flags = method, wait_seq     [B] barrier
//!   [A] barrier                           peer's wait_flags: a method, with a new wait_seq?
//!   look again                              own wake_seq += 1; wake
//!   sleep while peer's wake_seq is seq
//! ```
//! One of the two barriers is the first. If it is A, the notifier reads the flags and wakes: wake_seq has changed since it was
//! loaded, so the sleep ends or does not begin. If it is B, the look after A finds what was published before it.
//!
//! Where both sides are registered with membarrier(2), B is only a light barrier until the parker's flags ask for more
//! (NEED_FENCE). The parker asks once, with a heavy barrier, and leaves NEED_FENCE standing. A notifier that loaded the flags
//! before the heavy barrier had published before it, and the look finds that; one that loads them later reads NEED_FENCE and issues B.
//! When the parker has not needed to sleep for a while, it takes NEED_FENCE away, and its next sleep begins with a heavy barrier again.

use sluice_abi::ring::{NEED_FENCE, WAIT_SEQ_SHIFT, WAKE_FUTEX, WAKE_SOCKET};

use crate::memory::Ctrl;
use crate::sync::{Ordering, fence};
use crate::waker::Waker;

/// After so many successful spins in a row the peer is spared its barriers again.
const SPINS_WITHOUT_PARKING: u32 = if cfg!(sluice_loom) { 1 } else { 256 };

/// How a side wants to be woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeMethod {
    /// By futex(2) on the notifier's wake_seq.
    Futex,
    /// By a message on the socket, for a side that waits until a descriptor is readable.
    Socket,
}

const METHODS: u32 = WAKE_FUTEX | WAKE_SOCKET;

/// The half that sleeps.
#[derive(Debug)]
pub struct Parker {
    /// NEED_FENCE while it is in force.
    need_fence: u32,
    /// Whether the peer issues full barriers only when asked, and stops when asked no more.
    asymmetric: bool,
    wait_seq: u32,
    spins: u32,
}

impl Parker {
    /// `asymmetric`: both sides are registered with membarrier(2).
    pub fn new(asymmetric: bool) -> Self {
        Self {
            need_fence: 0,
            asymmetric,
            wait_seq: 0,
            spins: 0,
        }
    }

    /// Announces that `own` is about to sleep. Returns the peer's wake_seq from before: the caller looks again, sleeps while
    /// wake_seq is that, and then calls finish_park().
    pub fn prepare_park(
        &mut self,
        own: &Ctrl,
        peer: &Ctrl,
        method: WakeMethod,
        waker: &impl Waker,
    ) -> u32 {
        if self.asymmetric && self.need_fence == 0 {
            own.wait_flags.store(NEED_FENCE, Ordering::Relaxed);
            // Where it is refused, NEED_FENCE stays for ever, so that it is needed only once.
            self.asymmetric = waker.heavy_barrier();
            self.need_fence = NEED_FENCE;
        }
        let seq = peer.wake_seq.load(Ordering::Relaxed);
        // Pairs with the release in notify_slow().
        fence(Ordering::Acquire);
        self.spins = 0;
        self.wait_seq = self.wait_seq.wrapping_add(1) & (u32::MAX >> WAIT_SEQ_SHIFT);
        let method = match method {
            WakeMethod::Futex => WAKE_FUTEX,
            WakeMethod::Socket => WAKE_SOCKET,
        };
        own.wait_flags.store(
            self.wait_seq << WAIT_SEQ_SHIFT | self.need_fence | method,
            Ordering::Relaxed,
        );
        // [A], pairs with [B] in Notifier.
        fence(Ordering::SeqCst);
        seq
    }

    pub fn finish_park(&mut self, own: &Ctrl) {
        own.wait_flags.store(self.need_fence, Ordering::Relaxed);
    }

    /// Counts a wait that ended without sleeping.
    #[inline]
    pub fn note_spin_success(&mut self, own: &Ctrl) {
        if self.need_fence == 0 || !self.asymmetric {
            return;
        }
        self.spins += 1;
        if self.spins >= SPINS_WITHOUT_PARKING {
            self.need_fence = 0;
            own.wait_flags.store(0, Ordering::Relaxed);
        }
    }
}

/// The half that wakes.
#[derive(Debug)]
pub struct Notifier {
    asymmetric: bool,
    /// The wait flags that were answered last.
    answered: u32,
}

impl Notifier {
    /// `asymmetric`: both sides are registered with membarrier(2).
    pub fn new(asymmetric: bool) -> Self {
        Self {
            asymmetric,
            answered: 0,
        }
    }

    /// Wakes the peer if it sleeps or is about to. To be called after everything that the peer may wait for.
    #[inline]
    pub fn notify(&mut self, own: &Ctrl, peer: &Ctrl, waker: &impl Waker) {
        // [B], pairs with [A] in prepare_park().
        if self.asymmetric {
            waker.light_barrier();
        } else {
            fence(Ordering::SeqCst);
        }
        let flags = peer.wait_flags.load(Ordering::Relaxed);
        if flags != 0 {
            self.notify_slow(flags, own, peer, waker);
        }
    }

    #[cold]
    fn notify_slow(&mut self, mut flags: u32, own: &Ctrl, peer: &Ctrl, waker: &impl Waker) {
        if flags & NEED_FENCE != 0 {
            // [B], as asked.
            fence(Ordering::SeqCst);
            flags = peer.wait_flags.load(Ordering::Relaxed);
        }
        if flags & METHODS == 0 || flags == self.answered {
            return;
        }
        // Only this side writes it. Pairs with the acquire in prepare_park().
        let next = own.wake_seq.load(Ordering::Relaxed).wrapping_add(1);
        own.wake_seq.store(next, Ordering::Release);
        let method = match flags & WAKE_SOCKET {
            0 => WakeMethod::Futex,
            _ => WakeMethod::Socket,
        };
        // A wake-up that was not delivered is tried again by the next notification.
        if waker.wake(method, &own.wake_seq) {
            self.answered = flags;
        }
    }
}
