// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::sync::spin_loop;

/// So many records without waiting are a stream.
const STREAM: u32 = 8;

/// Pauses, in turns of spin_loop, which is some 40 ns on today's processors.
const FIRST_PAUSE: u32 = 64;
const LONGEST_PAUSE: u32 = 256;

/// Lets the other side get some cache lines ahead, in a stream.
#[derive(Debug, Default)]
pub struct Pace {
    streak: u32,
    pause: u32,
}

impl Pace {
    /// One more went without waiting.
    #[inline]
    pub fn step(&mut self) {
        self.streak += 1;
    }

    /// It has caught up with the other side, and is about to look again.
    #[inline]
    pub fn caught_up(&mut self) {
        if self.streak < STREAM {
            self.pause = 0;
        } else {
            self.pause = (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
            for _ in 0..self.pause {
                spin_loop();
            }
        }
        self.streak = 0;
    }

    /// Nothing came while it paused, nor afterwards: the other side is not about to go on, or has no processor to do so.
    pub fn gave_up(&mut self) {
        self.pause = 0;
    }
}

#[cfg(all(test, not(sluice_loom)))]
mod tests {
    use super::*;

    fn pause_after(pace: &mut Pace, records: u32) -> u32 {
        for _ in 0..records {
            pace.step();
        }
        pace.caught_up();
        pace.pause
    }

    #[test]
    fn only_a_stream_is_paused_for_and_longer_as_it_goes_on() {
        let mut pace = Pace::default();
        assert_eq!(pause_after(&mut pace, STREAM - 1), 0);
        assert_eq!(pause_after(&mut pace, STREAM), FIRST_PAUSE);
        assert_eq!(pause_after(&mut pace, STREAM), 2 * FIRST_PAUSE);
        for _ in 0..9 {
            pause_after(&mut pace, STREAM);
        }
        assert_eq!(pause_after(&mut pace, 1000), LONGEST_PAUSE);
        assert_eq!(pause_after(&mut pace, 1), 0);
        assert_eq!(pause_after(&mut pace, STREAM), FIRST_PAUSE);
    }

    #[test]
    fn who_had_to_sleep_begins_anew() {
        let mut pace = Pace::default();
        pause_after(&mut pace, STREAM);
        pause_after(&mut pace, STREAM);
        pace.gave_up();
        assert_eq!(pause_after(&mut pace, STREAM), FIRST_PAUSE);
    }
}
