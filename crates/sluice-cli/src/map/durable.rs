// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a new map is stored.

use std::time::Duration;

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use sluice::map::Durability;
use sluice_abi::map::DEFAULT_INTERVAL_MS;

use crate::args;

/// The longest time that the module accepts.
const TIME_MAX: Duration = Duration::from_secs(60 * 60);
const INTERVAL: Duration = Duration::from_millis(DEFAULT_INTERVAL_MS as u64);

/// The options of `--durable`, which the commands have beside them.
#[derive(Args)]
pub struct DurableArgs {
    /// When a change returns: once it is stored, or before [default: always; with --interval: interval]
    ///
    /// With --interval it cannot be always.
    #[arg(long, value_name = "WHEN", requires = "durable")]
    sync: Option<Sync>,

    /// Time in which changes are stored with --sync interval, such as 200ms or 5s [default: {INTERVAL}]
    ///
    /// Up to an hour.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, requires = "durable", value_parser = time)]
    interval: Option<Duration>,

    /// The limit of each wait for the store, such as 500ms or 30s [default: {DEADLINE}]
    ///
    /// It applies to an open, a change, a sync and a removal. Up to an hour.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, requires = "durable", value_parser = time)]
    deadline: Option<Duration>,

    /// Refuse changes while too many are not stored yet, instead of waiting up to the deadline
    #[arg(long, requires = "durable")]
    refuse: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Sync {
    /// Each change returns once it is stored
    Always,
    /// Changes return at once; a crash of the host can lose those of the interval
    Interval,
}

impl DurableArgs {
    pub fn durability(&self) -> Result<Durability> {
        ensure!(
            self.interval.is_none() || self.sync != Some(Sync::Always),
            "--interval is for --sync interval; remove one of them"
        );
        let durability = match (self.sync, self.interval) {
            (_, Some(time)) => Durability::interval(time),
            (Some(Sync::Interval), None) => Durability::interval(INTERVAL),
            (Some(Sync::Always) | None, None) => Durability::always(),
        };
        let durability = match self.deadline {
            Some(time) => durability.deadline(time),
            None => durability,
        };
        Ok(durability.refuse(self.refuse))
    }
}

fn time(text: &str) -> Result<Duration, String> {
    match args::time(text)? {
        time if time <= TIME_MAX => Ok(time),
        _ => Err("give a time of up to an hour, such as 500ms or 30s".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: DurableArgs = DurableArgs {
        sync: None,
        interval: None,
        deadline: None,
        refuse: false,
    };

    #[test]
    fn a_time_is_up_to_an_hour() {
        assert_eq!(time("1h"), Ok(TIME_MAX));
        for bad in ["61m", "3600001ms", "200"] {
            assert!(time(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_options_become_a_durability() {
        assert_eq!(NONE.durability().unwrap(), Durability::always());
        let second = Duration::from_secs(1);
        let interval = DurableArgs {
            sync: Some(Sync::Interval),
            deadline: Some(2 * second),
            refuse: true,
            ..NONE
        };
        let expected = Durability::interval(second)
            .deadline(2 * second)
            .refuse(true);
        assert_eq!(interval.durability().unwrap(), expected);
        let implied = DurableArgs {
            interval: Some(3 * second),
            ..NONE
        };
        let expected = Durability::interval(3 * second);
        assert_eq!(implied.durability().unwrap(), expected);
        let contradictory = DurableArgs {
            sync: Some(Sync::Always),
            ..implied
        };
        let error = contradictory.durability().unwrap_err().to_string();
        assert!(error.contains("--sync interval"), "{error}");
    }
}
