// SPDX-License-Identifier: MIT OR Apache-2.0
//! Spinning before sleeping, for as long as that has paid lately.
//!
//! A wait spins for a window and sleeps after that. The window follows from how long waits last as a whole, the sleep and the
//! wake-up included: after those that the limit would have covered it grows, after longer ones it shrinks to nothing. A
//! wake-up alone may take as long as the limit, so a wait of up to twice the limit may have been worth spinning for; a trial
//! tells, and trials become rare where they fail.

use std::time::{Duration, Instant};

use crate::sync::spin_loop;

/// About 3 µs.
const BRIEF_ITERATIONS: u32 = 64;

/// Iterations between two looks at the clock.
const ITERATIONS_PER_CLOCK: u32 = 32;

/// A shorter window is not worth while.
const MIN_WINDOW: Duration = Duration::from_micros(1);

/// So many waits that may have been worth spinning for lie before a trial, and twice as many after each that failed.
const FIRST_TRIAL: u32 = 8;
const LAST_TRIAL: u32 = 1024;

#[derive(Debug)]
pub struct AdaptiveSpin {
    limit: Duration,
    window: Duration,
    /// Since the last trial.
    doubtful: u32,
    trial_after: u32,
}

impl AdaptiveSpin {
    /// Never for longer than `limit`; zero turns it off.
    pub fn new(limit: Duration) -> Self {
        Self {
            limit,
            window: limit,
            doubtful: 0,
            trial_after: FIRST_TRIAL,
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
        &self,
        mut poll: impl FnMut() -> Option<T>,
        mut is_hopeless: impl FnMut() -> bool,
    ) -> Option<T> {
        if self.window.is_zero() {
            return poll();
        }
        let mut began = None;
        loop {
            for _ in 0..ITERATIONS_PER_CLOCK {
                if let Some(found) = poll() {
                    return Some(found);
                }
                spin_loop();
            }
            let began = *began.get_or_insert_with(Instant::now);
            if began.elapsed() >= self.window || is_hopeless() {
                return None;
            }
        }
    }

    /// Learns from a wait that lasted so long.
    pub fn adapt(&mut self, waited: Duration) {
        if waited <= self.limit {
            self.trial_after = FIRST_TRIAL;
            // Twice as long as usual waits, so that a longer one now and then does no harm.
            if waited > self.window / 2 {
                self.window = self
                    .window
                    .saturating_mul(2)
                    .max(MIN_WINDOW)
                    .min(self.limit);
            }
            return;
        }
        self.window /= 2;
        if self.window < MIN_WINDOW {
            self.window = Duration::ZERO;
        }
        if waited / 2 <= self.limit {
            self.doubtful += 1;
        }
        if self.doubtful == self.trial_after {
            self.doubtful = 0;
            self.trial_after = (self.trial_after * 2).min(LAST_TRIAL);
            self.window = self.limit;
        }
    }
}

#[cfg(all(test, not(sluice_loom)))]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_micros(50);

    /// What a wait lasts in which something comes after `gap`, if a wake-up takes `waking`.
    fn wait(spin: &mut AdaptiveSpin, gap: Duration, waking: Duration) -> bool {
        let spins = gap <= spin.window;
        spin.adapt(if spins { gap } else { gap + waking });
        spins
    }

    /// How many of so many waits find something while they spin.
    fn spun(spin: &mut AdaptiveSpin, waits: u32, gap: u64, waking: u64) -> usize {
        let [gap, waking] = [gap, waking].map(Duration::from_micros);
        (0..waits).filter(|_| wait(spin, gap, waking)).count()
    }

    fn asleep() -> AdaptiveSpin {
        let mut spin = AdaptiveSpin::new(LIMIT);
        spun(&mut spin, 100, 1000, 50);
        assert!(spin.window.is_zero());
        spin
    }

    #[test]
    fn gaps_below_the_limit_are_spun_through() {
        for gap in [1, 5, 20, 40] {
            for waking in [2, 10, 50] {
                assert!(
                    spun(&mut asleep(), 1000, gap, waking) >= 980,
                    "{gap} {waking}"
                );
            }
        }
    }

    #[test]
    fn longer_gaps_are_slept_through() {
        for gap in [60, 90, 200, 1000] {
            for waking in [2, 10, 50] {
                let mut spin = AdaptiveSpin::new(LIMIT);
                spun(&mut spin, 100, gap, waking);
                let idle = (0..10_000)
                    .filter(|_| {
                        let idle = spin.window.is_zero();
                        spun(&mut spin, 1, gap, waking);
                        idle
                    })
                    .count();
                assert!(idle >= 9_900, "{gap} {waking}: {idle}");
            }
        }
    }

    #[test]
    fn one_long_wait_among_short_ones_changes_little() {
        let mut spin = AdaptiveSpin::new(LIMIT);
        for _ in 0..100 {
            spun(&mut spin, 1, 10_000, 50);
            assert_eq!(spun(&mut spin, 99, 20, 50), 99);
        }
    }

    #[test]
    fn without_a_limit_there_is_no_end_and_with_none_no_beginning() {
        let mut spin = AdaptiveSpin::new(Duration::MAX);
        spin.adapt(Duration::from_secs(1 << 40));
        assert_eq!(spin.window, Duration::MAX);
        let mut spin = AdaptiveSpin::new(Duration::ZERO);
        spin.adapt(Duration::from_nanos(10));
        spin.adapt(Duration::ZERO);
        assert!(spin.window.is_zero());
    }
}
