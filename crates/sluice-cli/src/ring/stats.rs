// SPDX-License-Identifier: MIT OR Apache-2.0
use std::time::Instant;

use anyhow::Result;
use serde::Serialize;

use crate::output;

/// The number of transferred records and bytes.
pub struct Stats {
    start: Instant,
    pub records: u64,
    pub bytes: u64,
}

/// The JSON object that sluice(1) describes.
#[derive(Serialize)]
struct Summary {
    records: u64,
    bytes: u64,
    capacity: u64,
    seconds: f64,
}

impl Stats {
    pub fn start() -> Self {
        Self {
            start: Instant::now(),
            records: 0,
            bytes: 0,
        }
    }

    pub fn count(&mut self, length: usize) {
        self.records += 1;
        self.bytes += length as u64;
    }

    /// Prints to standard error, because the receiver prints records to standard output.
    pub fn print(&self, capacity: u64) -> Result<()> {
        let summary = Summary {
            records: self.records,
            bytes: self.bytes,
            capacity,
            seconds: self.start.elapsed().as_secs_f64(),
        };
        output::print_summary(&summary)
    }
}
