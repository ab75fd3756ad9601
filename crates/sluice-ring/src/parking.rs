// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sleep without lost wake-ups: one side parks, the other notifies it.
//!
//! ```text
//! Parker                                Notifier
//!   seq = peer's wake_seq                 publish, release or close
//!   own wait_flags = method, wait_seq     [B] barrier
//!   [A] barrier                           peer's wait_flags: a method, with a new wait_seq?
//!   check the condition                     own wake_seq += 1; wake
//!   sleep while peer's wake_seq is seq
//! ```
//! One of the two barriers is first. If it is A, the notifier loads the flags and wakes: wake_seq has changed since it was
//! loaded, so the sleep ends or does not begin. If it is B, the check after A finds what was published before B.
//!
//! If both sides are registered with membarrier(2), B is only a light barrier until the parker's flags contain NEED_FENCE.
//! The parker sets it once, with a heavy barrier, and leaves it set. A notifier that loaded the flags before the heavy
//! barrier had published before it, and the check finds that; one that loads them later reads NEED_FENCE and issues B. After
//! a number of waits without sleep the parker clears NEED_FENCE, and its next sleep begins with a heavy barrier again.
//!
//! Without a handshake neither side knows whether the peer is registered, or there at all. A parker that is registered
//! announces that, and then always requests barriers as above. A notifier that is registered issues full barriers until it
//! loads the announcement. If it registered after the parker's heavy barrier, it has issued a full barrier since, and reads
//! NEED_FENCE.
//!
//! A descriptor of the module is readable while the peer's wake_seq differs from the own wake_ack. The parker therefore
//! acknowledges `seq` before it sleeps, and a wait that uses poll(2) ends with another acknowledgement.

use sluice_abi::ring::{NEED_FENCE, WAIT_SEQ_SHIFT, WAKE_FD, WAKE_FUTEX};

use crate::memory::Ctrl;
use crate::sync::{Ordering, fence};
use crate::waker::Waker;

/// The number of consecutive successful spins after which NEED_FENCE is cleared.
const SPINS_WITHOUT_PARKING: u32 = if cfg!(sluice_loom) { 1 } else { 256 };

/// The method to wake a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeMethod {
    /// futex(2) on the notifier's wake_seq.
    Futex,
    /// The descriptor of the ring, for a side that waits in a call on it or until it is readable.
    Descriptor,
}

const METHODS: u32 = WAKE_FUTEX | WAKE_FD;

/// The sleeping half.
#[derive(Debug)]
pub struct Parker {
    /// NEED_FENCE or 0, as set in the flags.
    need_fence: u32,
    /// Whether the peer may issue full barriers only with NEED_FENCE, so that clearing it has an effect.
    asymmetric: bool,
    acknowledges: bool,
    wait_seq: u32,
    spins: u32,
}

impl Parker {
    /// `asymmetric`: both sides are registered with membarrier(2).
    pub fn new(asymmetric: bool) -> Self {
        Self {
            need_fence: 0,
            asymmetric,
            acknowledges: false,
            wait_seq: 0,
            spins: 0,
        }
    }

    /// For a device ring. `announced`: this side has announced that it is registered with membarrier(2).
    pub fn acknowledging(announced: bool) -> Self {
        Self {
            acknowledges: true,
            ..Self::new(announced)
        }
    }

    /// Announces that `own` is about to sleep. Returns the earlier wake_seq of the peer: the caller checks its condition
    /// again, sleeps while wake_seq is unchanged, and then calls finish_park().
    pub fn prepare_park(
        &mut self,
        own: &Ctrl,
        peer: &Ctrl,
        method: WakeMethod,
        waker: &impl Waker,
    ) -> u32 {
        if self.asymmetric && self.need_fence == 0 {
            own.wait_flags.store(NEED_FENCE, Ordering::Relaxed);
            // If membarrier(2) fails, NEED_FENCE stays set for ever, so that no second call is needed.
            self.asymmetric = waker.heavy_barrier();
            self.need_fence = NEED_FENCE;
        }
        let seq = peer.wake_seq.load(Ordering::Relaxed);
        // Pairs with the release in notify_slow().
        fence(Ordering::Acquire);
        if self.acknowledges {
            own.wake_ack.store(seq, Ordering::Relaxed);
        }
        self.spins = 0;
        self.wait_seq = self.wait_seq.wrapping_add(1) & (u32::MAX >> WAIT_SEQ_SHIFT);
        let method = match method {
            WakeMethod::Futex => WAKE_FUTEX,
            WakeMethod::Descriptor => WAKE_FD,
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

    /// Acknowledges all wake-ups: a descriptor of the module is not readable until the next one. What the peer published before
    /// them is visible to a later load. Over memfd it has no effect.
    pub fn acknowledge(&self, own: &Ctrl, peer: &Ctrl) {
        if !self.acknowledges {
            return;
        }
        let seq = peer.wake_seq.load(Ordering::Relaxed);
        // Pairs with the release in notify_slow().
        fence(Ordering::Acquire);
        own.wake_ack.store(seq, Ordering::Relaxed);
    }

    /// Counts a wait that ended without sleep.
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

/// The waking half.
#[derive(Debug)]
pub struct Notifier {
    asymmetric: bool,
    /// Whether it becomes asymmetric when the peer has announced that it is registered.
    expects_announcement: bool,
    /// The wait flags of the last delivered wake-up.
    answered: u32,
}

impl Notifier {
    /// `asymmetric`: both sides are registered with membarrier(2).
    pub fn new(asymmetric: bool) -> Self {
        Self {
            asymmetric,
            expects_announcement: false,
            answered: 0,
        }
    }

    /// For a device ring, where the peer may come later. `registered`: this side is, with membarrier(2).
    pub fn expecting_announcement(registered: bool) -> Self {
        Self {
            expects_announcement: registered,
            ..Self::new(false)
        }
    }

    /// Whether notify() issues no barrier, except if the peer's wait flags request one.
    #[inline]
    pub fn is_asymmetric(&self) -> bool {
        self.asymmetric
    }

    /// Wakes the peer if it sleeps or is about to. Must be called after every change that the peer may wait for.
    #[inline]
    pub fn notify(&mut self, own: &Ctrl, peer: &Ctrl, waker: &impl Waker) {
        // [B], pairs with [A] in prepare_park().
        if self.asymmetric {
            waker.light_barrier();
        } else {
            fence(Ordering::SeqCst);
            // A stale value only means another full barrier.
            self.asymmetric = self.expects_announcement && peer.has_membarrier();
        }
        let flags = peer.wait_flags.load(Ordering::Relaxed);
        if flags != 0 {
            self.notify_slow(flags, own, peer, waker);
        }
    }

    #[cold]
    fn notify_slow(&mut self, mut flags: u32, own: &Ctrl, peer: &Ctrl, waker: &impl Waker) {
        if flags & NEED_FENCE != 0 {
            // [B], requested by the peer.
            fence(Ordering::SeqCst);
            flags = peer.wait_flags.load(Ordering::Relaxed);
        }
        if flags & METHODS == 0 || flags == self.answered {
            return;
        }
        // Only this side writes it. Pairs with the acquire in prepare_park() and acknowledge().
        let next = own.wake_seq.load(Ordering::Relaxed).wrapping_add(1);
        own.wake_seq.store(next, Ordering::Release);
        let method = match flags & WAKE_FD {
            0 => WakeMethod::Futex,
            _ => WakeMethod::Descriptor,
        };
        // The next notification repeats a wake-up that was not delivered.
        if waker.wake(method, &own.wake_seq) {
            self.answered = flags;
        }
    }
}
