// SPDX-License-Identifier: MIT OR Apache-2.0
//! Adaptive spinning before sleep.
//!
//! A wait spins for a window and then sleeps. The window adapts to the duration of whole waits, including sleep and wake-up:
//! it grows after waits within the limit, and shrinks to zero after longer ones. A wait that exceeds the limit by no more
//! than a wake-up is ambiguous. After a number of those a trial spins for the whole limit; trials become less frequent if
//! they fail.
//!
//! A peer that needs this processor does not come while this side spins, but soon after it sleeps. After some waits in a row
//! that ended so, this side does not spin for a number of waits, which doubles while that is so.

use std::time::{Duration, Instant};

use crate::sync::spin_loop;

/// About 3 µs.
const BRIEF_ITERATIONS: u32 = 64;

/// The minimum window while waits end within the brief iterations, so that a single long wait does not disable those.
const BRIEF_WINDOW: Duration = Duration::from_micros(8);

/// Iterations per read of the clock.
const ITERATIONS_PER_CLOCK: u32 = 32;

/// The shortest window except zero.
const MIN_WINDOW: Duration = Duration::from_micros(1);

/// An upper bound of the duration of a wake-up, also in a virtual machine.
const WAKE_UP: Duration = Duration::from_micros(200);

/// The number of ambiguous waits before a trial; it doubles with each failed trial.
const FIRST_TRIAL: u32 = 8;
const LAST_TRIAL: u32 = 64;

/// The number of waits in a row in which spinning was in the peer's way, after which this side does not spin.
const OBSTRUCTED: u32 = 6;

/// The number of waits for which it does not spin then; it doubles each time.
const FIRST_REST: u32 = 64;
const LAST_REST: u32 = 4096;

#[derive(Debug)]
pub struct AdaptiveSpin {
    limit: Duration,
    window: Duration,
    /// The number of ambiguous waits since the last trial.
    doubtful: u32,
    trial_after: u32,
    /// Whether the window is that of a trial.
    on_trial: bool,
    /// How long the last poll() spun without finding anything.
    spun: Option<Duration>,
    /// The number of waits in a row in which spinning was in the peer's way.
    obstructed: u32,
    /// The number of waits without spinning that are left.
    rest: u32,
    next_rest: u32,
}

impl AdaptiveSpin {
    /// `limit` is the upper limit of the window; zero disables spinning.
    pub fn new(limit: Duration) -> Self {
        Self {
            limit,
            window: limit,
            doubtful: 0,
            trial_after: FIRST_TRIAL,
            on_trial: false,
            spun: None,
            obstructed: 0,
            rest: 0,
            next_rest: FIRST_REST,
        }
    }

    /// Polls a few times without any other check or the clock; most short waits end within these iterations. `poll` gets the number of
    /// earlier polls.
    #[inline]
    pub fn poll_briefly(&mut self, poll: impl Fn(u32) -> bool) -> bool {
        for iteration in 0..self.brief_iterations() {
            if poll(iteration) {
                self.note_brief_success();
                return true;
            }
            spin_loop();
        }
        false
    }

    #[inline]
    fn brief_iterations(&self) -> u32 {
        match self.window.is_zero() {
            true => 0,
            false => BRIEF_ITERATIONS,
        }
    }

    /// Adapts to a wait that ended within the brief iterations.
    #[inline]
    fn note_brief_success(&mut self) {
        self.note_peer_runs();
        self.on_trial = false;
        if self.window < BRIEF_WINDOW {
            self.window = BRIEF_WINDOW.min(self.limit);
        }
    }

    /// Polls until something is found or the window is over. `is_hopeless` is called occasionally.
    pub fn poll<T>(
        &mut self,
        mut poll: impl FnMut() -> Option<T>,
        mut is_hopeless: impl FnMut() -> bool,
    ) -> Option<T> {
        self.spun = None;
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
            let spun = began.elapsed();
            if spun >= self.window || is_hopeless() {
                self.spun = Some(spun);
                return None;
            }
        }
    }

    /// Adapts to a wait of this total duration.
    pub fn adapt(&mut self, waited: Duration) {
        if self.rest > 0 {
            self.rest -= 1;
            return;
        }
        if self.obstructs(waited) {
            self.obstructed = 0;
            self.on_trial = false;
            self.window = Duration::ZERO;
            self.rest = self.next_rest;
            self.next_rest = (self.next_rest * 2).min(LAST_REST);
        } else if waited <= self.limit {
            self.succeed(waited);
        } else {
            self.fail(waited);
        }
    }

    /// Whether spinning has been in the peer's way so often that the peer must need this processor. It then comes within less
    /// time asleep than was spun before. One that comes by itself is found by spinning the next time, for twice as long.
    fn obstructs(&mut self, waited: Duration) -> bool {
        match self.spun.take() {
            // A trial spins for longer than most waits last.
            Some(spun) if waited.saturating_sub(spun) < spun && !self.on_trial => {
                self.obstructed += 1;
            }
            Some(_) => self.obstructed = 0,
            None if self.window.is_zero() => self.obstructed = 0,
            None => self.note_peer_runs(),
        }
        self.obstructed >= OBSTRUCTED
    }

    /// The peer has come while this side span.
    #[inline]
    fn note_peer_runs(&mut self) {
        self.obstructed = 0;
        self.next_rest = FIRST_REST;
    }

    fn succeed(&mut self, waited: Duration) {
        self.on_trial = false;
        self.trial_after = FIRST_TRIAL;
        // The window is twice as long as usual waits, so that occasional longer ones are covered.
        if waited > self.window / 2 {
            let doubled = self.window.saturating_mul(2);
            self.window = doubled.max(MIN_WINDOW).min(self.limit);
        }
    }

    fn fail(&mut self, waited: Duration) {
        self.window /= 2;
        if self.on_trial || self.window < MIN_WINDOW {
            self.window = Duration::ZERO;
        }
        self.on_trial = false;
        if waited <= self.limit.saturating_add(WAKE_UP) {
            self.doubtful += 1;
        }
        if self.doubtful >= self.trial_after {
            self.doubtful = 0;
            self.trial_after = (self.trial_after * 2).min(LAST_TRIAL);
            self.on_trial = true;
            self.window = self.limit;
        }
    }
}

#[cfg(all(test, not(sluice_loom)))]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_micros(100);

    fn micros(time: u64) -> Duration {
        Duration::from_micros(time)
    }

    /// One wait, whose event comes after `gap` and whose wake-up takes `waking`. Returns whether it was found while
    /// spinning.
    fn wait(spin: &mut AdaptiveSpin, gap: u64, waking: u64) -> bool {
        let spins = micros(gap) <= spin.window;
        spin.spun = (!spins && !spin.window.is_zero()).then_some(spin.window);
        spin.adapt(micros(if spins { gap } else { gap + waking }));
        spins
    }

    /// The number of waits that succeed while spinning.
    fn spun(spin: &mut AdaptiveSpin, waits: u32, gap: u64, waking: u64) -> usize {
        (0..waits).filter(|_| wait(spin, gap, waking)).count()
    }

    fn asleep(limit: Duration) -> AdaptiveSpin {
        let mut spin = AdaptiveSpin::new(limit);
        spun(&mut spin, 100, 1000, 60);
        assert!(spin.window.is_zero());
        spin
    }

    #[test]
    fn gaps_below_the_limit_are_spun_through() {
        for (limit, gaps) in [(100, [1, 20, 90]), (10, [1, 5, 9]), (2, [1, 1, 1])] {
            for gap in gaps {
                for waking in [2, 10, 60] {
                    let spun = spun(&mut asleep(micros(limit)), 1000, gap, waking);
                    assert!(spun >= 980, "{limit} {gap} {waking}: {spun}");
                }
            }
        }
    }

    #[test]
    fn longer_gaps_are_slept_through() {
        for gap in [110, 150, 400, 1000] {
            for waking in [2, 10, 60] {
                let mut spin = AdaptiveSpin::new(LIMIT);
                spun(&mut spin, 200, gap, waking);
                let idle = |spin: &mut AdaptiveSpin| {
                    let idle = spin.window.is_zero();
                    wait(spin, gap, waking);
                    idle
                };
                let idle = (0..10_000).filter(|_| idle(&mut spin)).count();
                assert!(idle >= 9_800, "{gap} {waking}: {idle}");
            }
        }
    }

    #[test]
    fn one_long_wait_among_short_ones_changes_little() {
        let mut spin = AdaptiveSpin::new(LIMIT);
        for _ in 0..100 {
            wait(&mut spin, 10_000, 60);
            assert_eq!(spun(&mut spin, 99, 20, 60), 99);
        }
    }

    #[test]
    fn long_waits_in_a_stream_do_not_turn_brief_spinning_off() {
        let mut spin = AdaptiveSpin::new(LIMIT);
        for _ in 0..100 {
            wait(&mut spin, 10_000, 60);
            assert!(spin.brief_iterations() > 0);
            spin.note_brief_success();
        }
    }

    #[test]
    fn a_success_between_doubtful_waits_does_not_end_the_trials() {
        let mut spin = asleep(LIMIT);
        spun(&mut spin, 8 + 9, 150, 60);
        spin.adapt(micros(1));
        spin.window = Duration::ZERO;
        assert!(spun(&mut spin, 100, 90, 60) >= 90);
    }

    /// A peer on the same processor runs only while this side sleeps, for `turn` microseconds.
    #[test]
    fn a_peer_on_the_same_processor_is_slept_for() {
        for turn in [1, 5, 30] {
            let mut spin = AdaptiveSpin::new(LIMIT);
            let mut spun = Duration::ZERO;
            for _ in 0..10_000 {
                spun += spin.window;
                spin.spun = (!spin.window.is_zero()).then_some(spin.window);
                spin.adapt(spin.window + micros(turn));
            }
            assert!(spun < micros(10_000 / 2), "{turn}: {spun:?}");
            // It has moved to another processor.
            let found = (0..2 * LAST_REST).filter(|_| wait(&mut spin, turn, 60));
            assert!(found.count() >= LAST_REST as usize / 2, "{turn}");
        }
    }

    #[test]
    fn a_peer_elsewhere_is_spun_for_again_however_long_its_gaps_were() {
        for gap in [110, 150, 190] {
            for waking in [2, 10, 60] {
                let mut spin = AdaptiveSpin::new(LIMIT);
                spun(&mut spin, 20_000, gap, waking);
                let spun = spun(&mut spin, 200, 20, waking);
                assert!(spun >= 180, "{gap} {waking}: {spun}");
            }
        }
    }

    #[test]
    fn a_longer_wait_among_brief_ones_is_not_held_against_the_peer() {
        let mut spin = AdaptiveSpin::new(micros(5));
        for _ in 0..1000 {
            for _ in 0..10 {
                assert!(spin.brief_iterations() > 0);
                spin.note_brief_success();
            }
            wait(&mut spin, 7, 1);
        }
    }

    #[test]
    fn polling_says_how_long_it_found_nothing() {
        let mut spin = AdaptiveSpin::new(micros(50));
        assert_eq!(spin.poll(|| Some(1), || false), Some(1));
        assert_eq!(spin.spun, None);
        assert_eq!(spin.poll(|| None::<u8>, || false), None);
        assert!(spin.spun.unwrap() >= micros(50));
    }

    /// Each side waits for the wake-up of the other and its own. They must resume spinning.
    #[test]
    fn two_sides_that_sleep_in_a_conversation_begin_to_spin() {
        const WAKING: u64 = 60;
        let mut sides = [asleep(LIMIT), asleep(LIMIT)];
        let mut peer_sleeps = true;
        let mut spun = 0;
        for turn in 0..400 {
            let side = &mut sides[turn % 2];
            spun += u32::from(wait(side, 1 + if peer_sleeps { WAKING } else { 0 }, WAKING));
            peer_sleeps = side.window < micros(2);
        }
        assert!(spun >= 200, "{spun}");
    }

    #[test]
    fn without_a_limit_there_is_no_end_and_with_none_no_beginning() {
        let mut spin = AdaptiveSpin::new(Duration::MAX);
        spin.adapt(Duration::from_secs(1 << 40));
        assert_eq!(spin.window, Duration::MAX);
        let mut spin = AdaptiveSpin::new(Duration::ZERO);
        spin.adapt(Duration::from_nanos(10));
        spin.adapt(Duration::ZERO);
        spin.note_brief_success();
        assert!(spin.window.is_zero());
    }
}
