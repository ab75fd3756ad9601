// SPDX-License-Identifier: MIT OR Apache-2.0
//! A word to whoever waits for longer than they may have expected.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(1);

/// Does what may wait; once that takes long, says on stderr for what.
pub fn patiently<T>(waits_for: &str, action: impl FnOnce() -> T) -> T {
    let (done, waiting) = mpsc::channel::<()>();
    thread::scope(|threads| {
        threads.spawn(move || {
            if waiting.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                eprintln!("sluice: waiting for {waits_for}");
            }
        });
        let outcome = action();
        drop(done);
        outcome
    })
}
