// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the adapters of third-party libraries have in common.

use std::thread::yield_now;
use std::time::Instant;

use anyhow::{Result, ensure};

use crate::harness::server::START_TIMEOUT;

/// Repeats the check until the peer is there.
pub fn await_peer<T>(peer: &str, mut check: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let deadline = Instant::now() + START_TIMEOUT;
    loop {
        if let Some(found) = check()? {
            return Ok(found);
        }
        ensure!(
            Instant::now() < deadline,
            "the {peer} did not connect in time"
        );
        // Not a sleep, because the time is measured.
        yield_now();
    }
}
