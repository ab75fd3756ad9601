// SPDX-License-Identifier: MIT OR Apache-2.0

use anyhow::Result;
use clap::Args;
use serde::Serialize;
use sluice::Feed;
use sluice::feed::{FeedInfo, Receiver};

use super::FeedArgs;
use crate::output;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    feed: FeedArgs,

    /// Print a JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// The JSON object that sluice-feed(1) describes. The table has the same members.
#[derive(Serialize)]
struct State {
    consumer: Option<&'static str>,
    capacity: u64,
    sequence: u64,
    published: u64,
    lost: u64,
    violations: u64,
    #[serde(flatten)]
    simulator: Option<Simulator>,
}

#[derive(Serialize)]
struct Simulator {
    running: bool,
    cpu: Option<u32>,
    interval_ns: u64,
    expired: u64,
    missed: u64,
    seconds: f64,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let state = match &arguments.feed.name {
        Some(name) => State::new(&Feed::named(name).info()?, None),
        None => {
            let info = arguments.feed.open()?.info()?;
            State::new(&info, Some(Simulator::from(&info)))
        }
    };
    match arguments.json {
        true => output::print_json(&state),
        false => output::print(&table(&state)?),
    }
}

impl State {
    fn new(info: &FeedInfo, simulator: Option<Simulator>) -> Self {
        Self {
            consumer: info.receiver.map(|receiver| match receiver {
                Receiver::Reads => "reads",
                Receiver::Maps => "maps",
                _ => "other",
            }),
            capacity: info.capacity,
            sequence: info.sequence,
            published: info.published,
            lost: info.lost,
            violations: info.violations,
            simulator,
        }
    }
}

impl From<&FeedInfo> for Simulator {
    fn from(info: &FeedInfo) -> Self {
        Self {
            running: info.running,
            cpu: info.cpu,
            interval_ns: u64::try_from(info.interval.as_nanos()).unwrap_or(u64::MAX),
            expired: info.expired,
            missed: info.missed,
            seconds: info.elapsed.as_secs_f64(),
        }
    }
}

/// A line per member.
fn table(state: &State) -> Result<String> {
    let serde_json::Value::Object(members) = serde_json::to_value(state)? else {
        return Ok(String::new());
    };
    let lines = members.iter().map(|(member, value)| {
        let value = match value {
            serde_json::Value::Null => "none".to_owned(),
            serde_json::Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        format!("{:<12} {value}\n", member.to_uppercase())
    });
    Ok(lines.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(simulator: Option<Simulator>) -> State {
        State {
            consumer: None,
            capacity: 65536,
            sequence: 5,
            published: 4,
            lost: 1,
            violations: 0,
            simulator,
        }
    }

    #[test]
    fn only_the_feed_of_the_simulator_shows_one() {
        let named = table(&state(None)).unwrap();
        assert!(named.contains("CONSUMER     none\n"), "{named}");
        assert!(named.contains("PUBLISHED    4\n"), "{named}");
        assert!(!named.contains("RUNNING"), "{named}");
        let simulator = Simulator {
            running: true,
            cpu: Some(1),
            interval_ns: 1000,
            expired: 7,
            missed: 0,
            seconds: 1.5,
        };
        let unnamed = table(&state(Some(simulator))).unwrap();
        assert!(unnamed.contains("RUNNING      true\n"), "{unnamed}");
        assert!(unnamed.contains("EXPIRED      7\n"), "{unnamed}");
    }
}
