// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies of long records into a ring, past the caches where that is faster.
//!
//! A cache that writes to a line first takes it from the cache that has read it last. Between processors without a common cache
//! this takes several times as long as the copy. Past the caches, whole lines are written to memory, from where the consumer
//! reads them ahead of its copy. Processors with a common cache lose by that. Which of the two is the case is not known, and
//! changes when a process is moved, so it is measured: now and then, both ways, by the time of the copies alone, which does not
//! depend on what the two programs do. Decision 34.

use std::time::{Duration, Instant};

use super::copy::{LINE, copy_in, copy_past_caches};

/// Shorter records are partly in lines that both ways have to take over.
const LONG: usize = 16 * LINE;

/// The number of bytes that are copied each way in a trial.
const TRIAL: usize = 256 << 10;

/// The number of bytes before the first trial, and between trials, which then take less than one percent of the time.
const FIRST_INTERVAL: usize = 8 << 20;
const INTERVAL: usize = 64 << 20;

/// Bypassing the caches is worth it if it reduces the time of the copies to this fraction: the consumer's copies take longer.
const WORTH: f64 = 0.6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Cached,
    Bypassing,
}

/// The way of the next copies, and whether they are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Chosen(Way),
    Trial(Way),
}

#[derive(Debug)]
pub(super) struct Bypass {
    phase: Phase,
    /// The number of bytes until the phase ends.
    left: usize,
    /// The time of this trial's copies.
    elapsed: Duration,
    /// That of the trial of the cached way.
    cached: Duration,
}

impl Bypass {
    pub fn new() -> Self {
        Self {
            phase: Phase::Chosen(Way::Cached),
            left: FIRST_INTERVAL,
            elapsed: Duration::ZERO,
            cached: Duration::ZERO,
        }
    }

    /// # Safety
    /// As for copy_in().
    #[inline]
    pub unsafe fn copy(&mut self, from: *const u8, into: *mut u8, length: usize) {
        // SAFETY: as the caller guarantees.
        unsafe {
            if length < LONG {
                copy_in(from, into, length);
            } else {
                self.copy_long(from, into, length);
            }
        }
    }

    /// # Safety
    /// As for copy_in().
    #[inline(never)]
    unsafe fn copy_long(&mut self, from: *const u8, into: *mut u8, length: usize) {
        let began = matches!(self.phase, Phase::Trial(_)).then(Instant::now);
        let (Phase::Chosen(way) | Phase::Trial(way)) = self.phase;
        // SAFETY: as the caller guarantees.
        unsafe {
            match way {
                Way::Cached => copy_in(from, into, length),
                Way::Bypassing => copy_past_caches(from, into, length),
            }
        }
        if let Some(began) = began {
            self.elapsed += began.elapsed();
        }
        self.count(length);
    }

    /// After a copy of this length.
    fn count(&mut self, length: usize) {
        self.left = self.left.saturating_sub(length);
        if self.left == 0 {
            self.end_phase();
        }
    }

    fn end_phase(&mut self) {
        let elapsed = std::mem::take(&mut self.elapsed);
        (self.phase, self.left) = match self.phase {
            Phase::Chosen(_) => (Phase::Trial(Way::Cached), TRIAL),
            Phase::Trial(Way::Cached) => {
                self.cached = elapsed;
                (Phase::Trial(Way::Bypassing), TRIAL)
            }
            Phase::Trial(Way::Bypassing) if elapsed < self.cached.mul_f64(WORTH) => {
                (Phase::Chosen(Way::Bypassing), INTERVAL)
            }
            Phase::Trial(Way::Bypassing) => (Phase::Chosen(Way::Cached), INTERVAL),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: usize = 64 << 10;

    /// Copies for a phase, each of which takes this time.
    fn pass_phase(bypass: &mut Bypass, each: u64) {
        let phase = bypass.phase;
        while bypass.phase == phase {
            bypass.elapsed += Duration::from_nanos(each);
            bypass.count(RECORD);
        }
    }

    /// The way that is chosen after a trial in which copies take these times.
    fn chosen_after(bypass: &mut Bypass, cached: u64, bypassing: u64) -> Way {
        pass_phase(bypass, 0);
        assert_eq!(bypass.phase, Phase::Trial(Way::Cached));
        pass_phase(bypass, cached);
        assert_eq!(bypass.phase, Phase::Trial(Way::Bypassing));
        pass_phase(bypass, bypassing);
        match bypass.phase {
            Phase::Chosen(way) => way,
            Phase::Trial(_) => panic!("the trial has not ended"),
        }
    }

    #[test]
    fn the_caches_are_bypassed_while_that_is_much_faster() {
        let mut bypass = Bypass::new();
        assert_eq!(chosen_after(&mut bypass, 100, 100), Way::Cached);
        assert_eq!(chosen_after(&mut bypass, 100, 40), Way::Bypassing);
        assert_eq!(chosen_after(&mut bypass, 100, 40), Way::Bypassing);
        assert_eq!(chosen_after(&mut bypass, 100, 70), Way::Cached);
        assert_eq!(chosen_after(&mut bypass, 100, 40), Way::Bypassing);
    }

    #[test]
    fn trials_are_a_small_part_of_the_copies() {
        let mut bypass = Bypass::new();
        let (mut copied, mut timed) = (0, 0);
        while copied < 10 * INTERVAL {
            timed += usize::from(matches!(bypass.phase, Phase::Trial(_)));
            bypass.count(RECORD);
            copied += RECORD;
        }
        assert!((1..copied / RECORD / 100).contains(&timed), "{timed}");
    }

    #[test]
    fn a_record_longer_than_a_trial_is_one() {
        let mut bypass = Bypass::new();
        for phase in [
            Phase::Trial(Way::Cached),
            Phase::Trial(Way::Bypassing),
            Phase::Chosen(Way::Cached),
        ] {
            bypass.count(INTERVAL);
            assert_eq!(bypass.phase, phase);
        }
    }

    #[test]
    fn short_records_are_not_counted() {
        let (from, mut into) = ([7_u8; LONG], [0; LONG]);
        let mut bypass = Bypass::new();
        // SAFETY: both have this length.
        unsafe { bypass.copy(from.as_ptr(), into.as_mut_ptr(), LONG - 1) };
        assert_eq!(bypass.left, FIRST_INTERVAL);
        // SAFETY: as above.
        unsafe { bypass.copy(from.as_ptr(), into.as_mut_ptr(), LONG) };
        assert_eq!(bypass.left, FIRST_INTERVAL - LONG);
        assert_eq!(from, into);
    }

    #[test]
    fn records_are_copied_in_each_phase() {
        let from: Vec<u8> = (0..RECORD).map(|n| (n % 251) as u8).collect();
        let mut bypass = Bypass::new();
        let mut phases = Vec::new();
        while !phases.contains(&Phase::Trial(Way::Bypassing)) {
            phases.push(bypass.phase);
            let mut into = vec![0; RECORD];
            // SAFETY: both have this length.
            unsafe { bypass.copy(from.as_ptr(), into.as_mut_ptr(), RECORD) };
            assert!(into == from, "{:?}", phases.last());
        }
    }
}
