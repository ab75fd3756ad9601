// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the processes of an exchange follow each other: shared words in a cache line each.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{sleep, yield_now};
use std::time::Duration;

use anyhow::Result;
use sluice_testkit::shared::SharedWords;

/// Pauses between two looks of the sender, which would otherwise delay the receivers.
const PAUSES: usize = 200;
/// Between two looks of a sender that leaves its processor to the receivers.
pub const LOOK_INTERVAL: Duration = Duration::from_millis(1);

pub struct Progress {
    words: SharedWords,
    receivers: usize,
}

impl Progress {
    pub fn new(receivers: usize) -> Result<Self> {
        let words = SharedWords::new((1 + receivers) * SharedWords::PER_LINE)?;
        Ok(Self { words, receivers })
    }

    fn word(&self, number: usize) -> &AtomicU64 {
        &self.words.words()[number * SharedWords::PER_LINE]
    }

    /// By the sender: the receivers may receive this many messages.
    pub fn release(&self, sent: u64) {
        self.word(0).store(sent, Ordering::Release);
    }

    /// By a receiver: runs, without receiving, until more messages than these are released.
    pub fn await_release(&self, released: u64) -> u64 {
        loop {
            let now = self.word(0).load(Ordering::Acquire);
            if now > released {
                return now;
            }
            yield_now();
        }
    }

    /// By a receiver: the messages that it has received.
    pub fn set_received(&self, receiver: usize, messages: u64) {
        self.word(1 + receiver).store(messages, Ordering::Release);
    }

    /// By the sender: the messages that the receivers have received together.
    pub fn received(&self) -> u64 {
        let words = (1..=self.receivers).map(|number| self.word(number));
        words.map(|word| word.load(Ordering::Acquire)).sum()
    }

    /// By the sender: spins until the receivers have received this many messages together.
    pub fn await_received(&self, messages: u64) {
        while self.received() < messages {
            for _ in 0..PAUSES {
                spin_loop();
            }
        }
    }

    /// By the sender: sleeps until the receivers have received this many messages together.
    pub fn sleep_until_received(&self, messages: u64) {
        while self.received() < messages {
            sleep(LOOK_INTERVAL);
        }
    }
}
