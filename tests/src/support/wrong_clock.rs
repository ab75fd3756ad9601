// SPDX-License-Identifier: MIT OR Apache-2.0
//! The system clock at another time.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use nix::time::{ClockId, clock_gettime, clock_settime};

pub const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// The system clock at another time, until this is dropped.
pub struct WrongClock {
    right: Duration,
    since: Instant,
}

impl WrongClock {
    pub fn set(seconds: u64) -> Result<Self> {
        let clock = Self {
            right: Duration::from(clock_gettime(ClockId::CLOCK_REALTIME)?),
            since: Instant::now(),
        };
        // The kernel refuses a time that is less than the uptime.
        set(Duration::from_secs(seconds))?;
        Ok(clock)
    }

    /// A year ahead.
    pub fn ahead() -> Result<Self> {
        Self::set((now()? + YEAR).as_secs())
    }

    /// A year behind.
    pub fn behind() -> Result<Self> {
        Self::set((now()? - YEAR).as_secs())
    }

    /// What the clock would show.
    fn right(&self) -> Duration {
        self.right + self.since.elapsed()
    }

    /// A year ahead and a year behind in turn.
    pub fn flip_while(interval: Duration, is_needed: impl Fn() -> bool) -> Result<()> {
        let clock = Self::ahead()?;
        let mut is_ahead = true;
        while is_needed() {
            thread::sleep(interval);
            is_ahead = !is_ahead;
            set(match is_ahead {
                true => clock.right() + YEAR,
                false => clock.right() - YEAR,
            })?;
        }
        Ok(())
    }
}

fn now() -> Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_REALTIME)?.into())
}

fn set(time: Duration) -> Result<()> {
    clock_settime(ClockId::CLOCK_REALTIME, time.into()).context("setting the clock")
}

impl Drop for WrongClock {
    fn drop(&mut self) {
        let _ = set(self.right());
    }
}
