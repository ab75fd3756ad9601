// SPDX-License-Identifier: MIT OR Apache-2.0
use std::time::Instant;

use anyhow::{Context, Result};
use serde::Serialize;

/// The number of sent or received messages and bytes.
pub struct Stats {
    start: Instant,
    pub messages: u64,
    pub bytes: u64,
    pub lost: u64,
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
            messages: 0,
            bytes: 0,
            lost: 0,
        }
    }

    pub fn count(&mut self, length: usize) {
        self.messages += 1;
        self.bytes += length as u64;
    }

    /// Prints to standard error, because messages are in standard output.
    pub fn print(&self, id: u64) -> Result<()> {
        let summary = Summary {
            id,
            messages: self.messages,
            bytes: self.bytes,
            lost: self.lost,
            seconds: self.start.elapsed().as_secs_f64(),
        };
        let text = serde_json::to_string_pretty(&summary);
        eprintln!("{}", text.context("cannot encode the summary as JSON")?);
        Ok(())
    }
}
