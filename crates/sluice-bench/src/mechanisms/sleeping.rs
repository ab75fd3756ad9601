// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sleeping for the other side of a shared ring, and waking it only when it sleeps.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Result;

use super::shared_ring::{Position, Rest};

/// What the kernel sleeps on.
pub trait Bell {
    /// Sleeps until it is rung, unless the word is not AWAITED any more. May return for no reason.
    fn sleep(&self, awaited: &AtomicU32) -> Result<()>;

    /// Ends the sleep of whoever found the word AWAITED.
    fn ring(&self, awaited: &AtomicU32) -> Result<()>;
}

pub const AWAITED: u32 = 1;
const NOT_AWAITED: u32 = 0;

pub struct Sleeping<B>(pub B);

/// No wake-up is lost: the waiter says that it waits and then looks at the count, the other sets the count and then looks
/// whether someone waits. All four are SeqCst, so at least one of the two sees what the other did. Whoever takes the word
/// back rings, and the sleep is on that word, not on the count: it may be taken back, and rung for, on behalf of a count that
/// the waiter has meanwhile seen, just as it waits for the next.
impl<B: Bell> Rest for Sleeping<B> {
    fn wait(&self, position: &Position, seen: u32) -> Result<()> {
        // SeqCst: the pair is in publish, count before awaited.
        position.awaited.store(AWAITED, SeqCst);
        let slept = match position.count.load(SeqCst) == seen {
            true => self.0.sleep(&position.awaited),
            false => Ok(()),
        };
        position.awaited.store(NOT_AWAITED, Ordering::Relaxed);
        slept
    }

    fn publish(
        &self,
        position: &Position,
        count: u32,
        enough: impl FnOnce() -> bool,
    ) -> Result<()> {
        // SeqCst: the pair is in wait, awaited before count.
        position.count.store(count, SeqCst);
        if position.awaited.load(SeqCst) == AWAITED && enough() {
            // Taken back, so that a sleeper that has not run yet is not woken again at each message.
            if position.awaited.swap(NOT_AWAITED, SeqCst) == AWAITED {
                self.0.ring(&position.awaited)?;
            }
        }
        Ok(())
    }
}
