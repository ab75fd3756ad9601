// SPDX-License-Identifier: MIT OR Apache-2.0
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::Result;
use serde::Serialize;

use crate::output;

/// The number of sent or received messages and bytes. Another thread may read them at any time.
pub struct Stats {
    start: Instant,
    messages: AtomicU64,
    bytes: AtomicU64,
    lost: AtomicU64,
}

/// The JSON object that sluice-bus(1) describes.
#[derive(Serialize)]
struct Summary {
    id: u64,
    messages: u64,
    bytes: u64,
    lost: u64,
    seconds: f64,
}

impl Stats {
    pub fn start() -> Self {
        Self {
            start: Instant::now(),
            messages: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }
    }

    pub fn count(&self, length: usize) {
        self.messages.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(length as u64, Ordering::Relaxed);
    }

    pub fn count_lost(&self, messages: u64) {
        self.lost.fetch_add(messages, Ordering::Relaxed);
    }

    pub fn messages(&self) -> u64 {
        self.messages.load(Ordering::Relaxed)
    }

    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Prints to standard error, because messages are in standard output.
    pub fn print(&self, id: u64) -> Result<()> {
        let summary = Summary {
            id,
            messages: self.messages(),
            bytes: self.bytes.load(Ordering::Relaxed),
            lost: self.lost(),
            seconds: self.start.elapsed().as_secs_f64(),
        };
        output::print_summary(&summary)
    }
}
