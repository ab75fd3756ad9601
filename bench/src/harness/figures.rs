// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures: a value of each round, its unit and its text; and the conditions under which it was measured. A suite names what only it
//! measures by one of the constants below.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sluice_testkit::spread::Spread;
use sluice_testkit::units;

pub use serde_json::Value;

pub const CPU_PER_MESSAGE: &str = "cpu_ns_per_msg";
pub const MESSAGES_PER_SECOND: &str = "msgs_per_s";
pub const BYTES_PER_SECOND: &str = "bytes_per_s";
/// Percentiles of the latencies of a round, where it has enough of them.
pub const P99: &str = "p99";
pub const P999: &str = "p999";
/// With several writers of one channel: the messages of the busiest writer for each message of the least busy.
pub const IMBALANCE: &str = "imbalance";
pub const SWITCHES_PER_MESSAGE: &str = "context_switches_per_msg";
pub const LOST: &str = "lost";
/// The frequency of the time stamp counter, where the samples were taken with it.
pub const CYCLES_PER_NS: &str = "cycles_per_ns";
/// Messages for each commit of a store, where several can share one.
pub const MESSAGES_PER_COMMIT: &str = "msgs_per_commit";
/// The instructions of an operation in programs, and in the kernel.
pub const USER: &str = "user_instructions";
pub const KERNEL: &str = "kernel_instructions";

pub type Axes = BTreeMap<String, Value>;

/// One value per round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Values {
    pub median: f64,
    /// The smallest and the largest round.
    pub spread: [f64; 2],
    /// The number of each round, and its value.
    pub values: Vec<(usize, f64)>,
}

impl Values {
    /// None without rounds.
    pub fn of(values: impl Iterator<Item = (usize, f64)>) -> Option<Self> {
        let values: Vec<_> = values.collect();
        let numbers: Vec<f64> = values.iter().map(|(_, value)| *value).collect();
        let Spread { median, min, max } = Spread::of(&numbers)?;
        Some(Self {
            median,
            spread: [min, max],
            values,
        })
    }

    pub fn sum(&self) -> f64 {
        self.values.iter().map(|(_, value)| value).sum()
    }

    /// The ratio within each round that both have.
    pub fn ratio(&self, to: &Self) -> Option<Self> {
        let ratio = |(round, value): &(usize, f64)| {
            let (_, other) = to.values.iter().find(|(other, _)| other == round)?;
            Some((*round, value / other))
        };
        Self::of(self.values.iter().filter_map(ratio))
    }

    /// The ratio of medians that are not of the same rounds, with the largest range that rounds of both can have.
    pub fn ratio_of_medians(&self, to: &Self) -> Self {
        Self {
            median: self.median / to.median,
            spread: [self.spread[0] / to.spread[1], self.spread[1] / to.spread[0]],
            values: Vec::new(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    #[serde(rename = "ns")]
    Nanoseconds,
    #[serde(rename = "bytes/s")]
    BytesPerSecond,
    #[serde(rename = "operations/s")]
    OperationsPerSecond,
    #[serde(rename = "instructions")]
    Instructions,
    #[serde(rename = "bytes")]
    Bytes,
}

impl Unit {
    pub fn less_is_better(self) -> bool {
        matches!(self, Self::Nanoseconds | Self::Instructions | Self::Bytes)
    }

    pub fn text(self, value: f64) -> String {
        match self {
            Self::Nanoseconds => units::nanoseconds(value),
            Self::BytesPerSecond => units::bytes_per_second(value),
            Self::OperationsPerSecond => units::per_second(value),
            Self::Instructions => units::count(value),
            Self::Bytes => memory(value),
        }
    }

    pub fn range(self, [min, max]: [f64; 2]) -> String {
        match self {
            Self::Nanoseconds => units::nanosecond_range(min, max),
            Self::BytesPerSecond => units::rate_range(min, max),
            Self::OperationsPerSecond => units::per_second_range(min, max),
            Self::Instructions => units::count_range(min, max),
            Self::Bytes => format!("{} … {}", memory(min), memory(max)),
        }
    }
}

/// In KiB, of which pages are made, or MiB.
fn memory(bytes: f64) -> String {
    const KIB: f64 = 1024.0;
    match bytes {
        ..1000.0 => format!("{} B", units::figures(bytes)),
        ..1_024_000.0 => format!("{} KiB", units::figures(bytes / KIB)),
        _ => format!("{} MiB", units::figures(bytes / KIB / KIB)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_taken_within_equal_rounds() {
        let values = |values: &[(usize, f64)]| Values::of(values.iter().copied()).unwrap();
        let ours = values(&[(0, 2.0), (1, 30.0), (3, 8.0)]);
        let theirs = values(&[(1, 10.0), (2, 7.0), (3, 2.0)]);
        let ratio = ours.ratio(&theirs).unwrap();
        assert_eq!((ratio.median, ratio.spread), (3.5, [3.0, 4.0]));
        assert_eq!(ours.ratio(&values(&[(2, 1.0)])), None);
        let ratio = ours.ratio_of_medians(&theirs);
        assert_eq!((ratio.median, ratio.spread), (8.0 / 7.0, [0.2, 15.0]));
    }
}
