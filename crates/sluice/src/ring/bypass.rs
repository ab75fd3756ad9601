// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies of long records into a ring, past the caches where that is faster.
//!
//! A cache that writes to a line first takes it from the cache that has read it last. Between processors without a common cache
//! this takes several times as long as the copy. Past the caches, whole lines are written to memory, from where the consumer
//! reads them ahead of its copy. Processors with a common cache lose by that. Which of the two is the case is not known, and
//! changes when a process is moved, so it is measured: now and then some copies are made in both ways, and timed. Their times do
//! not depend on what the two programs do between them. Decision 34.

use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use super::copy::{CAN_BYPASS, LINE, copy_in, copy_past_caches};

/// Shorter records are partly in lines that both ways have to take over.
const LONG: usize = 16 * LINE;

/// The number of copies each way in a trial. Their median is compared: an interruption makes one of them long.
const SAMPLES: usize = 8;

/// The number of bytes before the first trial, and between trials, and the latter as a multiple of the bytes of a trial.
const FIRST_INTERVAL: usize = 8 << 20;
const INTERVAL: usize = 64 << 20;
const INTERVAL_OF_TRIALS: usize = 64;

/// Bypassing the caches is worth it if it reduces the time of a copy to this fraction: those of the consumer take longer.
const WORTH: f64 = 0.6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Cached,
    Bypassing,
}

#[derive(Debug)]
pub(super) struct Bypass {
    chosen: Way,
    /// The number of bytes until the next trial; zero during one.
    left: usize,
    trial: Trial,
}

impl Bypass {
    pub fn new() -> Self {
        Self {
            chosen: Way::Cached,
            left: match CAN_BYPASS {
                true => FIRST_INTERVAL,
                false => usize::MAX,
            },
            trial: Trial::default(),
        }
    }

    /// # Safety
    /// As for copy_in().
    #[inline]
    pub unsafe fn copy(&mut self, from: *const u8, into: *mut u8, length: usize) {
        // SAFETY: as the caller guarantees.
        unsafe {
            match length < LONG {
                true => copy_in(from, into, length),
                false => self.copy_long(from, into, length),
            }
        }
    }

    /// # Safety
    /// As for copy_in(), and the record is long.
    #[inline(never)]
    unsafe fn copy_long(&mut self, from: *const u8, into: *mut u8, length: usize) {
        if self.left == 0 {
            // SAFETY: as the caller guarantees.
            let elapsed = timed(|| unsafe { self.trial.way().copy(from, into, length) });
            self.note(length, elapsed);
        } else {
            // SAFETY: as the caller guarantees.
            unsafe { self.chosen.copy(from, into, length) };
            if CAN_BYPASS {
                self.left = self.left.saturating_sub(length);
            }
        }
    }

    /// After a copy of a trial.
    fn note(&mut self, length: usize, elapsed: Duration) {
        if let Some(worth) = self.trial.note(length, elapsed) {
            self.chosen = match worth {
                true => Way::Bypassing,
                false => Way::Cached,
            };
            self.left = INTERVAL.max(INTERVAL_OF_TRIALS.saturating_mul(self.trial.bytes));
            self.trial = Trial::default();
        }
    }
}

impl Way {
    /// # Safety
    /// As for copy_in(), and the record is long.
    unsafe fn copy(self, from: *const u8, into: *mut u8, length: usize) {
        // SAFETY: as the caller guarantees.
        unsafe {
            match self {
                Self::Cached => copy_in(from, into, length),
                Self::Bypassing => copy_past_caches(from, into, length),
            }
        }
    }
}

/// Including the time until its stores have left the processor's buffer.
fn timed(copy: impl FnOnce()) -> Duration {
    fence(Ordering::SeqCst);
    let began = Instant::now();
    copy();
    fence(Ordering::SeqCst);
    began.elapsed()
}

/// The times of copies in both ways, in nanoseconds per byte.
#[derive(Clone, Copy, Debug, Default)]
struct Trial {
    copies: usize,
    bytes: usize,
    cached: [f64; SAMPLES],
    bypassing: [f64; SAMPLES],
}

impl Trial {
    /// The way of the next copy: by turns, the other one first after each four, so that both get some of each kind of record if
    /// kinds alternate in a short period.
    fn way(&self) -> Way {
        match (self.copies + self.copies / 4) % 2 {
            0 => Way::Cached,
            _ => Way::Bypassing,
        }
    }

    /// After a copy of that way. At the end, whether it is worth bypassing the caches.
    fn note(&mut self, length: usize, elapsed: Duration) -> Option<bool> {
        let each = elapsed.as_nanos() as f64 / length as f64;
        let sample = self.copies / 2;
        match self.way() {
            Way::Cached => self.cached[sample] = each,
            Way::Bypassing => self.bypassing[sample] = each,
        }
        self.copies += 1;
        self.bytes = self.bytes.saturating_add(length);
        (self.copies == 2 * SAMPLES).then(|| self.is_worth_it())
    }

    /// Compares the medians: the lower one of the cached copies, the upper one of the bypassing copies, against different mixes of
    /// records.
    fn is_worth_it(mut self) -> bool {
        self.cached.sort_unstable_by(f64::total_cmp);
        self.bypassing.sort_unstable_by(f64::total_cmp);
        self.bypassing[SAMPLES / 2] < WORTH * self.cached[SAMPLES / 2 - 1]
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicPtr, AtomicUsize};
    use std::thread;

    use super::*;
    use crate::shared::atomic_copy::copy_out;

    const RECORD: usize = 64 << 10;

    /// A whole trial of copies of this length that take these times per KiB. What is chosen then.
    fn chosen_after(bypass: &mut Bypass, length: usize, time: impl Fn(Way, usize) -> u64) -> Way {
        bypass.left = 0;
        let mut copies = 0;
        while bypass.left == 0 {
            let each = time(bypass.trial.way(), copies);
            let elapsed = Duration::from_nanos(each * (length / 1024) as u64);
            bypass.note(length, elapsed);
            copies += 1;
        }
        assert_eq!(copies, 2 * SAMPLES);
        bypass.chosen
    }

    #[test]
    fn the_caches_are_bypassed_while_that_is_much_faster() {
        let mut bypass = Bypass::new();
        for (bypassing, chosen) in [
            (100, Way::Cached),
            (40, Way::Bypassing),
            (40, Way::Bypassing),
            (70, Way::Cached),
            (40, Way::Bypassing),
        ] {
            let time = |way, _| match way {
                Way::Cached => 100,
                Way::Bypassing => bypassing,
            };
            assert_eq!(chosen_after(&mut bypass, RECORD, time), chosen);
        }
    }

    /// One record in two, three or four takes longer or shorter for each byte, because of its length.
    #[test]
    fn records_of_different_kinds_do_not_decide() {
        let mut bypass = Bypass::new();
        for period in 2..=4 {
            for (one, others) in [(400, 100), (100, 400)] {
                for place in 0..period {
                    let time = |_, copies| {
                        if copies % period == place {
                            one
                        } else {
                            others
                        }
                    };
                    let chosen = chosen_after(&mut bypass, RECORD, time);
                    assert_eq!(chosen, Way::Cached, "{place} of {period}: {one}");
                }
            }
        }
    }

    #[test]
    fn an_interruption_does_not_decide() {
        let interrupted = |at: usize| move |_, copies| if copies == at { 100_000 } else { 100 };
        for at in 0..2 * SAMPLES {
            let mut bypass = Bypass::new();
            assert_eq!(
                chosen_after(&mut bypass, RECORD, interrupted(at)),
                Way::Cached
            );
        }
    }

    #[test]
    fn trials_are_a_small_part_of_the_copies() {
        for record in [LONG, RECORD, 4 << 20] {
            let mut bypass = Bypass::new();
            chosen_after(&mut bypass, record, |_, _| 100);
            assert!(bypass.left >= 64 * 2 * SAMPLES * record, "{record}");
        }
    }

    #[test]
    fn short_records_are_not_counted() {
        let (from, mut into) = ([7_u8; LONG], [0; LONG]);
        let mut bypass = Bypass::new();
        let left = bypass.left;
        // SAFETY: both have this length.
        unsafe { bypass.copy(from.as_ptr(), into.as_mut_ptr(), LONG - 1) };
        assert_eq!(bypass.left, left);
        // SAFETY: as above.
        unsafe { bypass.copy(from.as_ptr(), into.as_mut_ptr(), LONG) };
        assert_eq!(bypass.left, if CAN_BYPASS { left - LONG } else { left });
        assert_eq!(from, into);
    }

    #[test]
    fn records_are_copied_before_during_and_after_a_trial() {
        let from: Vec<u8> = (0..LONG).map(|n| (n % 251) as u8).collect();
        let mut bypass = Bypass::new();
        bypass.left = LONG;
        for _ in 0..2 * SAMPLES + 2 {
            let mut into = vec![0; LONG];
            // SAFETY: both have this length.
            unsafe { bypass.copy(from.as_ptr(), into.as_mut_ptr(), LONG) };
            assert!(into == from);
        }
        assert!(!CAN_BYPASS || bypass.left > LONG, "the trial has not ended");
    }

    /// Another thread reads each record as soon as it is published, at many lengths and places within a line.
    #[test]
    fn what_bypassed_the_caches_is_there_when_it_is_published() {
        const ROUNDS: usize = if cfg!(miri) { 4 } else { 20_000 };
        let mut memory = vec![0_u64; 2 * LONG / size_of::<u64>()];
        let memory = AtomicPtr::new(memory.as_mut_ptr().cast::<u8>());
        let at = |start: usize| memory.load(Ordering::Relaxed).wrapping_add(start);
        let published = AtomicUsize::new(0);
        let taken = AtomicUsize::new(0);
        let place = |round: usize| (8 * (round % 8), LONG + round % 100);
        // A panic of one thread would leave the other one waiting.
        let mut wrong = Vec::new();
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut bypass = Bypass::new();
                bypass.chosen = Way::Bypassing;
                bypass.left = usize::MAX;
                for round in 1..=ROUNDS {
                    let (start, length) = place(round);
                    let record = vec![round as u8; length];
                    while taken.load(Ordering::Acquire) != round - 1 {
                        thread::yield_now();
                    }
                    // SAFETY: it is within the memory, which the other thread does not access now.
                    unsafe { bypass.copy(record.as_ptr(), at(start), length) };
                    published.store(round, Ordering::Release);
                }
            });
            for round in 1..=ROUNDS {
                let (start, length) = place(round);
                while published.load(Ordering::Acquire) != round {
                    std::hint::spin_loop();
                }
                let mut record = vec![0; length];
                // SAFETY: it is within the memory, and was published.
                unsafe { copy_out(at(start), record.as_mut_ptr(), length) };
                if record.iter().any(|&byte| byte != round as u8) {
                    wrong.push(round);
                }
                taken.store(round, Ordering::Release);
            }
        });
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}
