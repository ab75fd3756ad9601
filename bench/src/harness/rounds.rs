// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is measured, and under which conditions.

use anyhow::{Context, Result};

use super::figures::{Axes, KERNEL, USER, Unit, Value};
use super::pinning::Placement;
use super::samples::Samples;
use super::waiting::Waiting;

#[derive(Clone, Debug, Default)]
pub struct Measurement {
    /// Latencies in nanoseconds; empty where only the rate was measured.
    pub samples: Vec<u64>,
    pub messages: u64,
    pub bytes: u64,
    pub elapsed_ns: u64,
    pub cpu_ns: u64,
    /// What only some suites measure, by the names in [`super::figures`].
    pub figures: Vec<(&'static str, f64)>,
}

impl Measurement {
    pub fn with(mut self, figure: &'static str, value: f64) -> Self {
        self.figures.push((figure, value));
        self
    }

    fn figure(&self, name: &str) -> Option<f64> {
        let mut figures = self.figures.iter();
        figures.find_map(|(known, value)| (*known == name).then_some(*value))
    }

    pub(super) fn per_message(&self, of: u64) -> Option<f64> {
        (of > 0 && self.messages > 0).then(|| of as f64 / self.messages as f64)
    }

    pub(super) fn per_second(&self, count: u64) -> Option<f64> {
        (count > 0 && self.elapsed_ns > 0).then(|| count as f64 * 1e9 / self.elapsed_ns as f64)
    }
}

pub trait Job {
    /// Transfers data once and compares every byte; not timed.
    fn check(&self) -> Result<()>;

    fn measure(&self) -> Result<Measurement>;
}

pub struct Subject {
    pub mechanism: &'static str,
    /// The name in tables.
    pub label: String,
    pub waiting: Waiting,
    pub job: Box<dyn Job>,
}

impl Subject {
    pub fn new(
        mechanism: &'static str,
        label: String,
        waiting: Waiting,
        job: impl Job + 'static,
    ) -> Self {
        Self {
            mechanism,
            label,
            waiting,
            job: Box::new(job),
        }
    }
}

/// A subject without a result.
#[derive(Clone)]
pub struct Skipped {
    pub mechanism: &'static str,
    pub label: String,
    pub reason: String,
    /// A failure, as opposed to a mechanism that is not available here.
    pub failed: bool,
}

impl Skipped {
    pub fn unavailable(mechanism: &'static str, reason: impl Into<String>) -> Self {
        Self {
            mechanism,
            label: mechanism.into(),
            reason: reason.into(),
            failed: false,
        }
    }

    /// Another mechanism that is absent for the same reason.
    pub fn of(&self, mechanism: &'static str) -> Self {
        Self {
            mechanism,
            label: mechanism.into(),
            ..self.clone()
        }
    }
}

/// The value that a case compares; it determines whether less or more is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// The median of the samples, in nanoseconds.
    Latency,
    /// Processor time of a message, in nanoseconds.
    Cost,
    /// Elapsed time of a message, in nanoseconds.
    Time,
    Rate,
    Operations,
    /// Executed instructions of an operation.
    Instructions,
    /// Bytes of memory of a channel, each of which passes one message.
    Memory,
}

impl Metric {
    pub fn unit(self) -> Unit {
        match self {
            Self::Latency | Self::Cost | Self::Time => Unit::Nanoseconds,
            Self::Rate => Unit::BytesPerSecond,
            Self::Operations => Unit::OperationsPerSecond,
            Self::Instructions => Unit::Instructions,
            Self::Memory => Unit::Bytes,
        }
    }

    pub(super) fn value(self, round: &Measurement, samples: &Samples) -> Result<f64> {
        let [user, kernel] = [USER, KERNEL].map(|part| round.figure(part));
        let value = match self {
            Self::Latency => (!samples.is_empty()).then(|| samples.percentile(0.5) as f64),
            Self::Cost => round.per_message(round.cpu_ns),
            Self::Time => round.per_second(round.messages).map(|rate| 1e9 / rate),
            Self::Rate => round.per_second(round.bytes),
            Self::Operations => round.per_second(round.messages),
            Self::Instructions => user.zip(kernel).map(|(user, kernel)| user + kernel),
            Self::Memory => round.per_message(round.bytes),
        };
        value.context("a round measured nothing; raise --duration")
    }
}

pub struct Case {
    pub suite: &'static str,
    pub title: String,
    pub size: Option<usize>,
    pub placement: Placement,
    pub processes: usize,
    /// Other conditions, such as the number of receivers.
    pub axes: Axes,
    pub metric: Metric,
    /// The mechanism with which the others are compared, by its first subject. None: the mechanism of the first subject.
    pub reference: Option<&'static str>,
    pub subjects: Vec<Subject>,
    pub skipped: Vec<Skipped>,
}

impl Case {
    /// Of one sender and one receiver, without subjects.
    pub fn new(suite: &'static str, title: String, placement: Placement, metric: Metric) -> Self {
        Self {
            suite,
            title,
            size: None,
            placement,
            processes: 2,
            axes: Axes::new(),
            metric,
            reference: None,
            subjects: Vec::new(),
            skipped: Vec::new(),
        }
    }

    pub fn of_size(self, size: usize) -> Self {
        let size = Some(size);
        Self { size, ..self }
    }

    pub fn axis(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.axes.insert(name.into(), value.into());
        self
    }

    pub(super) fn reference_label(&self) -> Option<String> {
        let mut subjects = self.subjects.iter();
        let found = subjects.find(|one| self.reference.is_none_or(|name| name == one.mechanism));
        found.map(|subject| subject.label.clone())
    }

    pub fn only(mut self, mechanisms: &[&str]) -> Self {
        let is_wanted = |name| mechanisms.contains(&name);
        self.subjects.retain(|one| is_wanted(one.mechanism));
        self.skipped.retain(|one| is_wanted(one.mechanism));
        self
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A measurement with this value, both as a latency and as a rate.
    pub fn measurement(value: f64) -> Measurement {
        Measurement {
            samples: vec![value as u64; 1000],
            messages: 10,
            bytes: value as u64,
            elapsed_ns: 1_000_000_000,
            cpu_ns: 500,
            ..Measurement::default()
        }
    }

    #[test]
    fn each_metric_has_its_value_and_an_empty_round_none() {
        let counted = measurement(1.0).with(USER, 120.5).with(KERNEL, 4000.0);
        for (metric, expected) in [
            (Metric::Latency, 7.0),
            (Metric::Cost, 50.0),
            (Metric::Time, 1e8),
            (Metric::Operations, 10.0),
            (Metric::Rate, 1.0),
            (Metric::Instructions, 4120.5),
            (Metric::Memory, 0.1),
        ] {
            let value = metric.value(&counted, &Samples::from_iter([7])).unwrap();
            assert_eq!(value, expected, "{metric:?}");
            let none = metric.value(&Measurement::default(), &Samples::from_iter([]));
            assert!(none.is_err());
        }
    }
}
