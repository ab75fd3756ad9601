// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::sync::spin_loop;

/// The number of consecutive records without a wait that make a stream.
const STREAM: u64 = 8;

/// Pauses, in iterations of spin_loop(), about 40 ns each on current processors.
const FIRST_PAUSE: u32 = 64;
const MAX_PAUSE: u32 = 256;

/// Pauses in a stream, so that the peer gets some cache lines ahead. Increases throughput at the cost of latency.
#[derive(Debug, Default)]
pub struct Backoff {
    /// If false, it never pauses.
    enabled: bool,
    /// The number of records without a wait. 64 bits never overflow.
    streak: u64,
    pause: u32,
}

impl Backoff {
    pub fn new(enabled: bool) -> Self {
        Self {
            enabled,
            ..Self::default()
        }
    }

    /// Counts a record without a wait.
    #[inline]
    pub fn note_progress(&mut self) {
        self.streak += 1;
    }

    /// Pauses after a stream, when this side has caught up with the peer.
    #[inline]
    pub fn pause(&mut self) {
        if !self.enabled || self.streak < STREAM {
            self.pause = 0;
        } else {
            self.pause = (self.pause * 2).clamp(FIRST_PAUSE, MAX_PAUSE);
            for _ in 0..self.pause {
                spin_loop();
            }
        }
        self.streak = 0;
    }

    /// Resets the pause: no record came during the last pause nor afterwards, so the peer is idle or has no processor.
    pub fn reset(&mut self) {
        self.pause = 0;
    }
}

#[cfg(all(test, not(sluice_loom)))]
mod tests {
    use super::*;

    fn pause_after(backoff: &mut Backoff, records: u64) -> u32 {
        for _ in 0..records {
            backoff.note_progress();
        }
        backoff.pause();
        backoff.pause
    }

    #[test]
    fn only_a_stream_is_paused_for_and_longer_as_it_goes_on() {
        let mut backoff = Backoff::new(true);
        assert_eq!(pause_after(&mut backoff, STREAM - 1), 0);
        assert_eq!(pause_after(&mut backoff, STREAM), FIRST_PAUSE);
        assert_eq!(pause_after(&mut backoff, STREAM), 2 * FIRST_PAUSE);
        for _ in 0..9 {
            pause_after(&mut backoff, STREAM);
        }
        assert_eq!(pause_after(&mut backoff, 1000), MAX_PAUSE);
        assert_eq!(pause_after(&mut backoff, 1), 0);
        assert_eq!(pause_after(&mut backoff, STREAM), FIRST_PAUSE);
    }

    #[test]
    fn nothing_is_paused_for_unless_it_was_asked_for() {
        assert_eq!(pause_after(&mut Backoff::new(false), 10 * STREAM), 0);
    }

    #[test]
    fn a_sleep_resets_the_pause() {
        let mut backoff = Backoff::new(true);
        pause_after(&mut backoff, STREAM);
        pause_after(&mut backoff, STREAM);
        backoff.reset();
        assert_eq!(pause_after(&mut backoff, STREAM), FIRST_PAUSE);
    }

    #[test]
    fn a_stream_may_have_more_records_than_32_bits_count() {
        let mut backoff = Backoff {
            streak: u32::MAX.into(),
            ..Backoff::new(true)
        };
        assert_eq!(pause_after(&mut backoff, 1), FIRST_PAUSE);
    }
}
