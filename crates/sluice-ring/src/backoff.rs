// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pauses in a stream, if they make it faster.
//!
//! A side that has caught up with its peer polls, and prefetches, the cache lines that the peer is about to write. On some
//! processors the stream is then several times slower than one in which the peer is some lines ahead, as it is after a pause.
//! But a pause delays the records that arrive during it, and achieves nothing if the peer waits for something else. Which of
//! the two is the case is not known in advance, so it is measured: now and then an epoch of a stream is a trial of the other
//! way, and the faster one is kept.

use std::mem;
use std::time::Instant;

use crate::sync::spin_loop;

/// The number of records over which a rate is measured.
const EPOCH: u64 = 512;

/// The number of records without a wait that make a stream. Without them after a pause, the next one is pointless.
const STREAM: u64 = 2;

/// Pauses, in iterations of spin_loop(), about 40 ns each on current processors.
const FIRST_PAUSE: u32 = 64;
const MAX_PAUSE: u32 = 256;

/// The number of epochs between trials; it doubles while they change nothing, so that almost no record is part of one.
const FIRST_INTERVAL: u32 = 4;
const LAST_INTERVAL: u32 = 1024;

/// While it pauses: a trial costs most of the rate.
const FIRST_INTERVAL_OF_PAUSES: u32 = 256;

/// The number of slow epochs in a row that end the pauses. A single one may contain an interruption of either side.
const SLOW_EPOCHS: u32 = 2;

/// Pausing is worth its delays if it reduces the time per record to this fraction. A stream that comes at the rate of its source
/// does not become faster.
const WORTH: f64 = 0.85;

/// What a side does when it has caught up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Eager,
    TrialOfPauses,
    Pausing,
    TrialOfNone,
}

#[derive(Debug)]
pub struct Backoff {
    /// If false, it never pauses.
    enabled: bool,
    phase: Phase,
    /// The number of records since it had caught up. 64 bits never overflow.
    streak: u64,
    /// The records of this epoch, and its beginning.
    records: u64,
    began: Option<Instant>,
    /// The time per record in nanoseconds, without pauses and with them.
    eager: f64,
    pausing: f64,
    /// The number of epochs until the next trial.
    epochs: u32,
    interval: u32,
    /// The number of slow epochs in a row.
    slow: u32,
    pause: u32,
}

impl Backoff {
    pub fn new(enabled: bool) -> Self {
        Self {
            enabled,
            phase: Phase::Eager,
            streak: 0,
            records: 0,
            began: None,
            eager: f64::INFINITY,
            pausing: f64::INFINITY,
            epochs: FIRST_INTERVAL,
            interval: FIRST_INTERVAL,
            slow: 0,
            pause: 0,
        }
    }

    /// Counts records without a wait.
    #[inline]
    pub fn note_progress(&mut self, records: u64) {
        self.streak += records;
    }

    /// When this side has caught up with the peer: pauses, if that makes the stream faster.
    #[inline]
    pub fn pause(&mut self) {
        let streak = mem::take(&mut self.streak);
        // The record that ends this wait is not counted otherwise.
        self.records += streak + 1;
        if self.records >= EPOCH && self.enabled {
            self.end_epoch(Instant::now());
        }
        match self.phase {
            Phase::TrialOfPauses if self.pause == 0 || streak >= STREAM => self.spin(),
            Phase::TrialOfPauses => self.enter(Phase::Eager, self.doubled()),
            Phase::Pausing if streak >= STREAM => self.spin(),
            Phase::Pausing => self.pause = 0,
            Phase::Eager | Phase::TrialOfNone => {}
        }
    }

    /// No record came for long, so the peer is idle or has no processor: what was measured means nothing.
    pub fn reset(&mut self) {
        match self.phase {
            // What remains has to suffice for a new measurement of the time without pauses.
            Phase::Eager => self.epochs = self.epochs.max(FIRST_INTERVAL),
            Phase::TrialOfPauses => self.enter(Phase::Eager, self.doubled()),
            Phase::Pausing | Phase::TrialOfNone => self.enter(Phase::Eager, FIRST_INTERVAL),
        }
        self.eager = f64::INFINITY;
        self.streak = 0;
        self.records = 0;
        self.began = None;
    }

    #[cold]
    fn spin(&mut self) {
        self.pause = (self.pause * 2).clamp(FIRST_PAUSE, MAX_PAUSE);
        for _ in 0..self.pause {
            spin_loop();
        }
    }

    #[cold]
    fn end_epoch(&mut self, now: Instant) {
        let records = mem::take(&mut self.records);
        if let Some(began) = self.began.replace(now) {
            let elapsed = now.duration_since(began).as_nanos() as f64;
            self.note_epoch(elapsed / records as f64);
        }
    }

    /// After an epoch with this time per record, in nanoseconds.
    fn note_epoch(&mut self, each: f64) {
        match self.phase {
            Phase::Eager => {
                self.eager = nearly_least(self.eager, each);
                self.count_down(Phase::TrialOfPauses);
            }
            Phase::TrialOfPauses if each < WORTH * self.eager => {
                self.pausing = each;
                self.enter(Phase::Pausing, FIRST_INTERVAL_OF_PAUSES);
            }
            Phase::TrialOfPauses => self.enter(Phase::Eager, self.doubled()),
            // The peer sends less, or one side gets less of its processor.
            Phase::Pausing if each > self.eager => self.note_slow(each),
            Phase::Pausing => {
                self.pausing = nearly_least(self.pausing, each);
                self.slow = 0;
                self.count_down(Phase::TrialOfNone);
            }
            Phase::TrialOfNone => {
                self.eager = nearly_least(self.eager, each);
                match self.pausing < WORTH * self.eager {
                    true => self.enter(Phase::Pausing, self.doubled()),
                    false => self.enter(Phase::Eager, FIRST_INTERVAL),
                }
            }
        }
    }

    /// After an epoch that was slower than one without pauses.
    fn note_slow(&mut self, each: f64) {
        self.slow += 1;
        if self.slow == SLOW_EPOCHS {
            self.eager = each;
            self.enter(Phase::Eager, FIRST_INTERVAL);
        }
    }

    fn count_down(&mut self, trial: Phase) {
        self.epochs -= 1;
        if self.epochs == 0 {
            self.phase = trial;
            self.pause = 0;
        }
    }

    fn enter(&mut self, phase: Phase, interval: u32) {
        self.phase = phase;
        self.interval = interval;
        self.epochs = interval;
        self.slow = 0;
        self.pause = 0;
    }

    fn doubled(&self) -> u32 {
        (self.interval * 2).min(LAST_INTERVAL)
    }
}

/// The least of recent times: an interruption of either side is part of some epochs, and is not to count. After one, the next
/// trial is compared with this multiple of the least. Times WORTH, that is still less than the least.
fn nearly_least(known: f64, each: f64) -> f64 {
    each.min(1.05 * known)
}

#[cfg(all(test, not(sluice_loom)))]
mod tests {
    use super::*;

    /// The time per record without pauses, in these tests.
    const EAGER: f64 = 200.0;

    fn after_epochs(backoff: &mut Backoff, epochs: u32, each: f64) -> Phase {
        for _ in 0..epochs {
            backoff.note_epoch(each);
        }
        backoff.phase
    }

    fn on_trial() -> Backoff {
        let mut backoff = Backoff::new(true);
        after_epochs(&mut backoff, FIRST_INTERVAL, EAGER);
        assert_eq!(backoff.phase, Phase::TrialOfPauses);
        backoff
    }

    fn pausing() -> Backoff {
        let mut backoff = on_trial();
        backoff.note_epoch(EAGER / 3.0);
        assert_eq!(backoff.phase, Phase::Pausing);
        backoff
    }

    /// Receives this many records without a wait, and then waits; returns the pause.
    fn pause_after(backoff: &mut Backoff, records: u64) -> u32 {
        for _ in 0..records {
            backoff.note_progress(1);
        }
        backoff.pause();
        backoff.pause
    }

    #[test]
    fn pauses_that_make_a_stream_faster_are_kept() {
        let mut backoff = pausing();
        for interval in [
            FIRST_INTERVAL_OF_PAUSES,
            2 * FIRST_INTERVAL_OF_PAUSES,
            LAST_INTERVAL,
            LAST_INTERVAL,
        ] {
            let phase = after_epochs(&mut backoff, interval - 1, EAGER / 3.0);
            assert_eq!(phase, Phase::Pausing);
            // Without pauses it is as slow as before.
            backoff.note_epoch(EAGER / 3.0);
            assert_eq!(backoff.phase, Phase::TrialOfNone);
            backoff.note_epoch(EAGER);
        }
        assert_eq!(backoff.phase, Phase::Pausing);
    }

    #[test]
    fn pauses_that_do_not_are_tried_more_and_more_rarely() {
        let mut backoff = Backoff::new(true);
        let mut trials = 0;
        for _ in 0..8 * LAST_INTERVAL {
            backoff.note_epoch(0.9 * EAGER);
            trials += u32::from(backoff.phase == Phase::TrialOfPauses);
        }
        assert!((9..18).contains(&trials), "{trials}");
    }

    #[test]
    fn pauses_end_when_the_stream_is_slower_than_it_was_without() {
        let mut backoff = pausing();
        for _ in 0..100 {
            // One epoch with an interruption.
            backoff.note_epoch(100.0 * EAGER);
            backoff.note_epoch(EAGER / 3.0);
        }
        assert_eq!(backoff.phase, Phase::Pausing);
        after_epochs(&mut backoff, SLOW_EPOCHS, 1.1 * EAGER);
        assert_eq!(backoff.phase, Phase::Eager);
    }

    #[test]
    fn pauses_end_when_the_stream_is_as_fast_without() {
        let mut backoff = pausing();
        after_epochs(&mut backoff, FIRST_INTERVAL_OF_PAUSES + 1, EAGER / 2.0);
        assert_eq!(backoff.phase, Phase::Eager);
    }

    #[test]
    fn an_interruption_without_pauses_does_not_make_them_seem_fast() {
        let mut backoff = Backoff::new(true);
        after_epochs(&mut backoff, FIRST_INTERVAL - 1, EAGER);
        backoff.note_epoch(100.0 * EAGER);
        assert_eq!(backoff.phase, Phase::TrialOfPauses);
        backoff.note_epoch(0.9 * EAGER);
        assert_eq!(backoff.phase, Phase::Eager);
    }

    #[test]
    fn a_peer_that_answers_is_paused_for_once_per_trial() {
        let mut backoff = on_trial();
        assert_eq!(pause_after(&mut backoff, 0), FIRST_PAUSE);
        assert_eq!(pause_after(&mut backoff, 0), 0);
        assert_eq!(backoff.phase, Phase::Eager);
        for _ in 0..EPOCH / 2 {
            assert_eq!(pause_after(&mut backoff, 0), 0);
        }
    }

    #[test]
    fn only_a_stream_is_paused_for_and_longer_as_it_goes_on() {
        let mut backoff = pausing();
        assert_eq!(pause_after(&mut backoff, STREAM - 1), 0);
        assert_eq!(pause_after(&mut backoff, STREAM), FIRST_PAUSE);
        assert_eq!(pause_after(&mut backoff, STREAM), 2 * FIRST_PAUSE);
        assert_eq!(pause_after(&mut backoff, STREAM), MAX_PAUSE);
        assert_eq!(pause_after(&mut backoff, STREAM), MAX_PAUSE);
        assert_eq!(pause_after(&mut backoff, STREAM - 1), 0);
        assert_eq!(pause_after(&mut backoff, STREAM), FIRST_PAUSE);
    }

    #[test]
    fn a_sleep_ends_the_pauses_and_forgets_what_was_measured() {
        let mut backoff = pausing();
        pause_after(&mut backoff, STREAM);
        backoff.reset();
        assert_eq!(backoff.phase, Phase::Eager);
        assert_eq!(pause_after(&mut backoff, STREAM), 0);
        assert!(backoff.eager.is_infinite());
    }

    #[test]
    fn a_side_that_never_spins_never_pauses() {
        let mut backoff = Backoff::new(false);
        for _ in 0..100 {
            assert_eq!(pause_after(&mut backoff, 10 * EPOCH), 0);
        }
        assert_eq!(backoff.phase, Phase::Eager);
        assert_eq!(backoff.epochs, FIRST_INTERVAL);
    }

    #[test]
    fn a_stream_may_have_more_records_than_32_bits_count() {
        let mut backoff = pausing();
        backoff.streak = u32::MAX.into();
        assert_eq!(pause_after(&mut backoff, STREAM), FIRST_PAUSE);
    }

    #[test]
    fn the_records_of_a_stream_lead_to_a_trial() {
        let mut backoff = Backoff::new(true);
        // The first epoch only sets the time at which the second begins.
        for _ in 0..u64::from(FIRST_INTERVAL) * EPOCH / 8 {
            assert_eq!(pause_after(&mut backoff, 7), 0);
            assert_eq!(backoff.phase, Phase::Eager);
        }
        let pauses: Vec<_> = (0..EPOCH / 8)
            .map(|_| pause_after(&mut backoff, 7))
            .collect();
        assert_eq!(backoff.phase, Phase::TrialOfPauses);
        assert_eq!(pauses.last(), Some(&FIRST_PAUSE));
    }

    #[test]
    fn streams_that_sleep_in_each_trial_have_them_more_and_more_rarely() {
        let mut backoff = Backoff::new(true);
        let mut trials = 0;
        for _ in 0..1000 {
            trials += u32::from(after_epochs(&mut backoff, FIRST_INTERVAL, EAGER) != Phase::Eager);
            backoff.reset();
        }
        assert!((1..20).contains(&trials), "{trials}");
    }
}
