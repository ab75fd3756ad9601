// SPDX-License-Identifier: MIT OR Apache-2.0
use std::time::Instant;

use anyhow::{Context, Result};
use serde::Serialize;

/// What went through the ring, for whoever asks at the end.
pub struct Tally {
    began: Instant,
    pub records: u64,
    pub bytes: u64,
}

/// Its fields are described in sluice(1).
#[derive(Serialize)]
struct Summary {
    records: u64,
    bytes: u64,
    capacity: u64,
    seconds: f64,
}

impl Tally {
    pub fn begin() -> Self {
        Self {
            began: Instant::now(),
            records: 0,
            bytes: 0,
        }
    }

    pub fn count(&mut self, length: usize) {
        self.records += 1;
        self.bytes += length as u64;
    }

    /// On standard error, as the receiver's records have the output.
    pub fn tell(&self, capacity: u64) -> Result<()> {
        let summary = Summary {
            records: self.records,
            bytes: self.bytes,
            capacity,
            seconds: self.began.elapsed().as_secs_f64(),
        };
        let text = serde_json::to_string_pretty(&summary).context("turning the sum into JSON")?;
        eprintln!("{text}");
        Ok(())
    }
}
