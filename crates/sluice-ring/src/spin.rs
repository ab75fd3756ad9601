// SPDX-License-Identifier: MIT OR Apache-2.0
//! Spinning before sleeping, for as long as that has paid lately.

use std::time::{Duration, Instant};

use crate::sync::spin_loop;

/// About 3 µs.
const BRIEF_ITERATIONS: u32 = 64;

/// Iterations between two looks at the clock.
const ITERATIONS_PER_CLOCK: u32 = 32;

/// Where spinning has not paid, it is tried again once in so many times.
const TRIAL: u32 = 32;

/// A shorter window is not worth while.
const MIN_WINDOW: Duration = Duration::from_micros(1);

#[derive(Debug)]
pub struct AdaptiveSpin {
    max: Duration,
    /// Doubled when spinning paid, halved when not.
    window: Duration,
    skipped: u32,
}

impl AdaptiveSpin {
    /// Never for longer than `max`; zero turns it off.
    pub fn new(max: Duration) -> Self {
        Self {
            max,
            window: max,
            skipped: 0,
        }
    }

    /// Iterations before anything else is looked at, the clock included: what comes at once comes within these.
    #[inline]
    pub fn brief_iterations(&self) -> u32 {
        match self.window.is_zero() {
            true => 0,
            false => BRIEF_ITERATIONS,
        }
    }

    /// Polls until something is found or it is time to sleep. `is_hopeless` is asked now and then.
    pub fn poll<T>(
        &mut self,
        mut poll: impl FnMut() -> Option<T>,
        mut is_hopeless: impl FnMut() -> bool,
    ) -> Option<T> {
        let limit = self.limit();
        if limit.is_zero() {
            return poll();
        }
        let mut began = None;
        loop {
            for _ in 0..ITERATIONS_PER_CLOCK {
                if let Some(found) = poll() {
                    self.window = self.window.saturating_mul(2).max(MIN_WINDOW).min(self.max);
                    return Some(found);
                }
                spin_loop();
            }
            let began = *began.get_or_insert_with(Instant::now);
            if began.elapsed() >= limit || is_hopeless() {
                break;
            }
        }
        self.window /= 2;
        None
    }

    fn limit(&mut self) -> Duration {
        if self.window >= MIN_WINDOW {
            return self.window.min(self.max);
        }
        self.skipped = (self.skipped + 1) % TRIAL;
        match self.skipped {
            0 => self.max,
            _ => Duration::ZERO,
        }
    }
}
