// SPDX-License-Identifier: MIT OR Apache-2.0
//! Deadlines. They turn a hang into a failure; nothing relies on a delay being long enough.

use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

static SLOWNESS: OnceLock<f64> = OnceLock::new();

/// The time within which an expected event must happen on a machine of ordinary speed.
const EVENT_TIMEOUT: Duration = Duration::from_secs(20);

/// How long an emulated machine of two processors without other load takes to start a program and to wait for its end. Most of what
/// tests and the demo wait for are such starts.
const ORDINARY_START: Duration = Duration::from_millis(60);

/// The time for which a test watches that something does not happen. If it is too short the test may miss a fault; it
/// never reports a wrong one.
const GRACE_PERIOD: Duration = Duration::from_millis(30);

/// Sets how many times slower than an ordinary machine this one is; called once, before the first test.
pub fn set_slowness(factor: f64) {
    SLOWNESS
        .set(factor)
        .expect("the slowness is set once, by main");
}

/// Measures how many times slower than an ordinary machine this one is; at least 1.
pub fn measure_slowness() -> f64 {
    const STARTS: u32 = 16;
    // The first start reads the program from a disk.
    start_program();
    let begin = Instant::now();
    (0..STARTS).for_each(|_| start_program());
    let ordinary = (ORDINARY_START * STARTS).as_secs_f64();
    (begin.elapsed().as_secs_f64() / ordinary).max(1.0)
}

/// Ignores a failed start: the slowness is then 1.
fn start_program() {
    let _ = Command::new("/bin/true").status();
}

pub fn scaled(span: Duration) -> Duration {
    span.mul_f64(*SLOWNESS.get().unwrap_or(&1.0))
}

pub fn event_timeout() -> Duration {
    scaled(EVENT_TIMEOUT)
}

pub fn wait_grace_period() {
    std::thread::sleep(GRACE_PERIOD);
}

/// A point in time before which an event must happen.
pub struct Deadline {
    at: Instant,
    span: Duration,
}

impl Deadline {
    pub fn after(span: Duration) -> Self {
        Deadline {
            at: Instant::now() + span,
            span,
        }
    }

    pub fn for_event() -> Self {
        Self::after(event_timeout())
    }

    pub fn remaining(&self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }

    pub fn passed(&self) -> bool {
        self.remaining().is_zero()
    }

    pub fn span(&self) -> Duration {
        self.span
    }

    /// The remaining time for poll(2), rounded up so that the deadline has passed when a poll times out.
    pub fn poll_timeout(&self) -> i32 {
        i32::try_from(self.remaining().as_millis() + 1).unwrap_or(i32::MAX)
    }
}

/// Repeats `look` until it returns a value, or fails after the event timeout.
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let deadline = Deadline::for_event();
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if deadline.passed() {
            bail!("{what}: not within {:?}", deadline.span());
        }
        std::thread::sleep(Duration::from_micros(500));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eventually_returns_what_was_found() {
        let mut left = 3;
        let found = eventually("countdown", || {
            left -= 1;
            Ok((left == 0).then_some("done"))
        });
        assert_eq!(found.expect("found at the third look"), "done");
    }

    #[test]
    fn eventually_passes_errors_on_at_once() {
        let failed: Result<()> = eventually("never", || bail!("broken"));
        assert_eq!(failed.expect_err("look failed").to_string(), "broken");
    }

    #[test]
    fn a_deadline_passes() {
        let deadline = Deadline::after(Duration::ZERO);
        assert!(deadline.passed());
        assert_eq!(deadline.poll_timeout(), 1);
    }
}
