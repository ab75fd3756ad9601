// SPDX-License-Identifier: MIT OR Apache-2.0
//! A notice on standard error when a command waits for longer than a second.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use crate::output;

const DELAY: Duration = Duration::from_secs(1);

/// Runs a blocking action. If it takes longer than DELAY, prints `awaited` as the reason.
pub fn with_wait_notice<T>(awaited: &str, action: impl FnOnce() -> T) -> T {
    with_wait_notice_if(|| true, awaited, action)
}

/// As [`with_wait_notice`], for an action that takes longer for other reasons, too: prints the notice if `is_awaited` then.
pub fn with_wait_notice_if<T>(
    is_awaited: impl FnOnce() -> bool + Send,
    awaited: &str,
    action: impl FnOnce() -> T,
) -> T {
    let (done, waiting) = mpsc::channel::<()>();
    thread::scope(|threads| {
        threads.spawn(move || {
            if waiting.recv_timeout(DELAY) == Err(RecvTimeoutError::Timeout) && is_awaited() {
                output::note(&format!("sluice: waiting for {awaited}"));
            }
        });
        let outcome = action();
        drop(done);
        outcome
    })
}

/// What a command waits for, and how to find out whether the other side has opened the same name in another cgroup.
pub fn elsewhere(awaited: &str) -> String {
    format!("{awaited}; 'sudo sluice ls --all' lists other cgroups, too")
}
