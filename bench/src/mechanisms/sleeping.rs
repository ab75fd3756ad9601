// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waits by sleeping, and wakes the peer only if it sleeps.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Result;

use super::shared_ring::{Position, WaitStrategy};

/// The kernel object on which a process sleeps.
pub trait Waker {
    /// Called in the process that sleeps, before the first message.
    fn begin_waiting(&self) -> Result<()> {
        Ok(())
    }

    /// Sleeps until woken, unless the word is no longer WAITING. Spurious wake-ups are allowed.
    fn sleep(&self, waiting: &AtomicU32) -> Result<()>;

    /// Wakes the process that found the word WAITING.
    fn wake(&self, waiting: &AtomicU32) -> Result<()>;
}

pub const WAITING: u32 = 1;
const NOT_WAITING: u32 = 0;

pub struct Sleeping<W>(pub W);

/// No wake-up is lost: the waiter sets the word and then loads the count, while the publisher stores the count and then
/// loads the word. All four accesses are SeqCst, so at least one of the two sees the store of the other. The process
/// that clears the word also wakes, and the sleep is on that word rather than on the count: the wake-up may belong to a
/// count that the waiter has already seen.
impl<W: Waker> WaitStrategy for Sleeping<W> {
    fn begin_waiting(&self) -> Result<()> {
        self.0.begin_waiting()
    }

    fn wait(&self, position: &Position, seen: u32) -> Result<()> {
        // Pairs with publish(), which stores the count before it loads the word.
        position.waiting.store(WAITING, SeqCst);
        let slept = match position.count.load(SeqCst) == seen {
            true => self.0.sleep(&position.waiting),
            false => Ok(()),
        };
        position.waiting.store(NOT_WAITING, Ordering::Relaxed);
        slept
    }

    fn publish(
        &self,
        position: &Position,
        count: u32,
        enough: impl FnOnce() -> bool,
    ) -> Result<()> {
        // Pairs with wait(), which stores the word before it loads the count.
        position.count.store(count, SeqCst);
        if position.waiting.load(SeqCst) == WAITING && enough() {
            // Cleared, so that a sleeper that has not run yet is not woken again by each message.
            if position.waiting.swap(NOT_WAITING, SeqCst) == WAITING {
                self.0.wake(&position.waiting)?;
            }
        }
        Ok(())
    }
}
