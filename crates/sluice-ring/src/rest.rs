// SPDX-License-Identifier: MIT OR Apache-2.0
//! How one side sleeps without missing the other's call, and how the other calls.
//!
//! ```text
//! who sleeps                            who calls
//!   seen = their bell                     publish, release or close
//!   our waiting = how, turn               [B] barrier
//!   [A] barrier                           their waiting says how, with a new turn?
//!   look once more                          our bell += 1; wake
//!   sleep while their bell is seen
//! ```
//! One of the two barriers is the first. If it is A, B's side reads what is waiting and calls: the bell has changed since it was
//! seen, so that the sleep ends or does not begin. If it is B, the look after A finds what was published before it.
//!
//! Where the caller is registered with membarrier(2), B is left out as long as the sleeper's waiting does not ask for it
//! (FENCE). A sleeper asks once, with a barrier everywhere, and leaves that standing: a caller that read waiting before that
//! barrier had published before it, and the look finds it; one that reads it later reads FENCE and issues B. When it has
//! not needed to sleep for a while, the sleeper takes FENCE away, and its next sleep begins with a barrier everywhere again.

use sluice_abi::ring::{FENCE, TURN_SHIFT, WAKE_FUTEX, WAKE_SOCKET};

use crate::bed::Bed;
use crate::memory::Side;
use crate::sync::{Ordering, compiler_fence, fence};

/// So many times in a row spinning was enough, until the other side is spared the barriers.
const AWAKE: u32 = 256;

/// How a side wants to be woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// By futex(2) on the caller's bell.
    Futex,
    /// By a message on the socket, for who sleeps until a descriptor can be read.
    Socket,
}

const HOW: u32 = WAKE_FUTEX | WAKE_SOCKET;

/// The sleeping half.
#[derive(Debug)]
pub struct Rest {
    /// FENCE while it is in force.
    fence: u32,
    /// Whether the other side issues its barriers only when asked.
    asks: bool,
    turn: u32,
    awake: u32,
}

impl Rest {
    /// Of a side whose other one says that it is registered with membarrier(2), or not.
    pub fn new(registered: bool) -> Self {
        Self {
            fence: 0,
            asks: registered,
            turn: 0,
            awake: 0,
        }
    }

    /// Announces that `own` goes to sleep. The bell of the other side, as it was before: the caller looks once more, sleeps while
    /// the bell is that, and then calls get_up.
    pub fn lie_down(&mut self, own: &Side, other: &Side, how: How, bed: &impl Bed) -> u32 {
        if self.asks && self.fence == 0 {
            own.waiting.store(FENCE, Ordering::Relaxed);
            bed.barrier_everywhere();
            self.fence = FENCE;
        }
        let seen = other.bell.load(Ordering::Acquire);
        self.awake = 0;
        self.turn = self.turn.wrapping_add(1) & (u32::MAX >> TURN_SHIFT);
        let how = match how {
            How::Futex => WAKE_FUTEX,
            How::Socket => WAKE_SOCKET,
        };
        own.waiting.store(
            self.turn << TURN_SHIFT | self.fence | how,
            Ordering::Relaxed,
        );
        // [A], pairs with [B] in Call.
        fence(Ordering::SeqCst);
        seen
    }

    pub fn get_up(&mut self, own: &Side) {
        own.waiting.store(self.fence, Ordering::Relaxed);
    }

    /// It waited, and need not have slept.
    #[inline]
    pub fn stayed_awake(&mut self, own: &Side) {
        if self.fence == 0 {
            return;
        }
        self.awake += 1;
        if self.awake >= AWAKE {
            self.fence = 0;
            own.waiting.store(0, Ordering::Relaxed);
        }
    }
}

/// The calling half.
#[derive(Debug)]
pub struct Call {
    registered: bool,
    answered: u32,
}

impl Call {
    /// Of a side that is registered with membarrier(2) and has told the other so, or not.
    pub fn new(registered: bool) -> Self {
        Self {
            registered,
            answered: 0,
        }
    }

    /// Wakes the other side if it sleeps, or is about to. To be called after everything that it may wait for.
    #[inline]
    pub fn out(&mut self, own: &Side, other: &Side, bed: &impl Bed) {
        // [B], pairs with [A] in lie_down.
        if self.registered {
            compiler_fence(Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
        let waiting = other.waiting.load(Ordering::Relaxed);
        if waiting != 0 {
            self.answer(waiting, own, other, bed);
        }
    }

    #[cold]
    fn answer(&mut self, mut waiting: u32, own: &Side, other: &Side, bed: &impl Bed) {
        if waiting & FENCE != 0 {
            // [B], as asked.
            fence(Ordering::SeqCst);
            waiting = other.waiting.load(Ordering::Relaxed);
        }
        if waiting & HOW == 0 || waiting == self.answered {
            return;
        }
        self.answered = waiting;
        // Nobody else writes it. Pairs with the acquire in lie_down.
        let next = own.bell.load(Ordering::Relaxed).wrapping_add(1);
        own.bell.store(next, Ordering::Release);
        let how = match waiting & WAKE_SOCKET {
            0 => How::Futex,
            _ => How::Socket,
        };
        bed.wake(how, &own.bell);
    }
}
