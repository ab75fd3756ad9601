// SPDX-License-Identifier: MIT OR Apache-2.0
//! Spinning before sleeping, for as long as that has paid lately.

use std::time::{Duration, Instant};

use crate::sync::spin_loop;

/// Some 3 µs.
const GLANCES: u32 = 64;

/// Looks between two looks at the clock.
const LOOKS: u32 = 32;

/// Where spinning has not paid, it is tried again once in so many times.
const TRIAL: u32 = 32;

/// Shorter is not worth while.
const SHORTEST: Duration = Duration::from_micros(1);

#[derive(Debug)]
pub struct Spin {
    most: Duration,
    /// What it is worth now: doubled when it paid, halved when not.
    worth: Duration,
    skipped: u32,
}

impl Spin {
    /// Never for longer than `most`; zero turns it off.
    pub fn new(most: Duration) -> Self {
        Self {
            most,
            worth: most,
            skipped: 0,
        }
    }

    /// So many looks before the clock is asked for the first time, or anything else: what comes at once comes within these.
    #[inline]
    pub fn glances(&self) -> u32 {
        match self.worth.is_zero() {
            true => 0,
            false => GLANCES,
        }
    }

    /// Looks until something is found or it is time to sleep. `hopeless` is asked now and then.
    pub fn look<T>(
        &mut self,
        mut look: impl FnMut() -> Option<T>,
        hopeless: impl Fn() -> bool,
    ) -> Option<T> {
        let limit = self.limit();
        if limit.is_zero() {
            return look();
        }
        let mut began = None;
        loop {
            for _ in 0..LOOKS {
                if let Some(found) = look() {
                    self.worth = self.worth.saturating_mul(2).max(SHORTEST).min(self.most);
                    return Some(found);
                }
                spin_loop();
            }
            let began = *began.get_or_insert_with(Instant::now);
            if began.elapsed() >= limit || hopeless() {
                break;
            }
        }
        self.worth /= 2;
        None
    }

    fn limit(&mut self) -> Duration {
        if self.worth >= SHORTEST {
            return self.worth.min(self.most);
        }
        self.skipped = (self.skipped + 1) % TRIAL;
        match self.skipped {
            0 => self.most,
            _ => Duration::ZERO,
        }
    }
}
