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
}
