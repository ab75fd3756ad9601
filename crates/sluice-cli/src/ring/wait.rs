// SPDX-License-Identifier: MIT OR Apache-2.0
//! The wait for the other side.

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::wait_notice::with_wait_notice;

const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// The limit of `--wait`.
pub struct WaitLimit {
    time: Option<Duration>,
    pub deadline: Option<Instant>,
}

impl WaitLimit {
    /// None: no limit.
    pub fn from_now(time: Option<Duration>) -> Self {
        Self {
            time,
            deadline: time.and_then(|time| Instant::now().checked_add(time)),
        }
    }

    /// Whether the command line has one.
    pub fn is_given(&self) -> bool {
        self.time.is_some()
    }

    /// The rest of the time; none without a limit.
    pub fn left(&self) -> Option<Duration> {
        let left = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
        self.deadline.map(left)
    }

    /// Repeats an attempt that returns none for as long as a retry may help. Prints `awaited` if that takes long.
    pub fn retry<T>(
        &self,
        awaited: &str,
        mut attempt: impl FnMut() -> Result<Option<T>>,
    ) -> Result<T> {
        with_wait_notice(awaited, || {
            loop {
                if let Some(found) = attempt()? {
                    return Ok(found);
                }
                if self
                    .deadline
                    .is_some_and(|deadline| Instant::now() >= deadline)
                {
                    return Err(self.timeout(awaited));
                }
                thread::sleep(RETRY_INTERVAL);
            }
        })
    }

    pub fn timeout(&self, awaited: &str) -> anyhow::Error {
        WaitTimeout {
            time: self.time.unwrap_or_default(),
            awaited: awaited.to_owned(),
        }
        .into()
    }
}

/// The other side, or the ring, was missing within --wait.
#[derive(Debug)]
pub struct WaitTimeout {
    time: Duration,
    awaited: String,
}

impl fmt::Display for WaitTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { time, awaited } = self;
        match time.is_zero() {
            true => write!(f, "timeout at once waiting for {awaited}"),
            false => write!(f, "timeout after {time:?} waiting for {awaited}"),
        }
    }
}

impl std::error::Error for WaitTimeout {}
