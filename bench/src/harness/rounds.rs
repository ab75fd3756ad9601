// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is measured, under which conditions, and the results of each round.

use std::fmt;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use sluice_testkit::spread::Spread;

use super::class::{self, Bracketed, Class};
use super::pinning::Placement;
use super::samples::Samples;
use super::waiting::Waiting;

/// The result of one subject in one round.
#[derive(Clone, Debug, Default)]
pub struct Measurement {
    /// Latencies in nanoseconds; empty where only the rate was measured, and when they belong to a [`Round`].
    pub samples: Vec<u64>,
    pub messages: u64,
    pub bytes: u64,
    pub elapsed_ns: u64,
    pub cpu_ns: u64,
    /// Bytes that a process of another pair received; None where there is only one pair.
    pub misdelivered: Option<u64>,
    /// With several writers of one channel: the messages of the busiest writer for each message of the least busy.
    pub imbalance: Option<f64>,
    /// Context switches of all processes, where they were counted.
    pub context_switches: Option<u64>,
    /// Packets that the consumer never received, where they have numbers.
    pub lost: Option<u64>,
    /// The frequency of the time stamp counter, where the samples were taken with it.
    pub cycles_per_ns: Option<f64>,
    /// Commits of a store that several messages can share.
    pub commits: Option<u64>,
    /// The instructions of an operation, where they were counted.
    pub instructions: Option<Instructions>,
}

/// The executed instructions of an operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Instructions {
    pub user: f64,
    pub kernel: f64,
}

impl Measurement {
    fn messages_per_second(&self) -> Result<f64> {
        ensure!(
            self.messages > 0 && self.elapsed_ns > 0,
            "a round transferred nothing; raise --duration"
        );
        Ok(self.messages as f64 * 1e9 / self.elapsed_ns as f64)
    }
}

/// A repeatable measurement.
pub trait Job {
    /// Transfers data once and compares every byte; not timed.
    fn check(&self) -> Result<()>;

    fn measure(&self) -> Result<Measurement>;
}

impl Job for Box<dyn Job> {
    fn check(&self) -> Result<()> {
        (**self).check()
    }

    fn measure(&self) -> Result<Measurement> {
        (**self).measure()
    }
}

pub struct Subject {
    pub mechanism: &'static str,
    /// The name in tables.
    pub label: String,
    pub waiting: Waiting,
    pub processes: usize,
    pub population: Option<Population>,
    /// The operation of several processes.
    pub operation: Option<&'static str>,
    /// Messages per call, in comparisons of batches.
    pub batch: Option<usize>,
    /// The processes of one channel, where there are more than one sender and one receiver.
    pub sharing: Option<Sharing>,
    pub neighbours: Option<Neighbours>,
    /// What the receivers do while messages are sent, where that is a condition.
    pub receiver_state: Option<ReceiverState>,
    /// At which rate messages become due, where they do so independently of earlier ones.
    pub load: Option<OfferedLoad>,
    pub job: Box<dyn Job>,
}

impl Subject {
    /// One sender and one receiver.
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
            processes: 2,
            population: None,
            operation: None,
            batch: None,
            sharing: None,
            neighbours: None,
            receiver_state: None,
            load: None,
            job: Box::new(job),
        }
    }
}

/// A constant rate of messages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OfferedLoad {
    /// Of the saturation of the reference.
    pub percent: u32,
    /// Messages per second.
    pub rate: f64,
}

/// The pairs beside a measured one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbours {
    pub pairs: usize,
    /// None without other pairs.
    pub activity: Option<Activity>,
}

/// What the other pairs do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Their buffers are full, and their senders sleep.
    Stalled,
    Busy,
}

impl Neighbours {
    pub const NONE: Self = Self {
        pairs: 0,
        activity: None,
    };
}

impl Activity {
    pub fn name(self) -> &'static str {
        match self {
            Self::Stalled => "stalled",
            Self::Busy => "busy",
        }
    }
}

impl fmt::Display for Neighbours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.activity {
            None => f.write_str("alone"),
            Some(activity) => write!(f, "beside {} {}", self.pairs, activity.name()),
        }
    }
}

/// What the receivers of a channel do while messages are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReceiverState {
    /// They run, and receive after a burst.
    Busy,
    /// They ask for messages all the time.
    Polling,
    /// They sleep before each message, which is a burst by itself.
    Asleep,
    /// They receive as fast as they can, and the sender does not wait for them.
    Streaming,
}

impl ReceiverState {
    pub fn name(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Polling => "polling",
            Self::Asleep => "asleep",
            Self::Streaming => "streaming",
        }
    }
}

/// The processes of one channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharing {
    pub writers: usize,
    pub readers: usize,
}

/// An operation, and the number of names and scopes among which it is performed.
#[derive(Clone, Copy, Debug)]
pub struct Population {
    pub operation: &'static str,
    /// Names in the scope.
    pub names: usize,
    pub scopes: usize,
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
    /// Not available here.
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
    /// Bytes per second.
    Rate,
    /// Messages per second.
    Operations,
    /// Executed instructions of an operation.
    Instructions,
    /// Bytes of memory of a channel, each of which passes one message.
    Memory,
}

impl Metric {
    fn value(self, measurement: &Measurement, samples: &Samples) -> Result<f64> {
        match self {
            Self::Latency => {
                ensure!(
                    !samples.is_empty(),
                    "a round has no sample; raise --duration"
                );
                Ok(samples.percentile(0.5) as f64)
            }
            Self::Cost => {
                ensure!(
                    measurement.messages > 0,
                    "a round transferred nothing; raise --duration"
                );
                Ok(measurement.cpu_ns as f64 / measurement.messages as f64)
            }
            Self::Time => Ok(1e9 / measurement.messages_per_second()?),
            Self::Operations => measurement.messages_per_second(),
            Self::Instructions => {
                let counted = measurement.instructions;
                let counted = counted.context("a round counted no instructions")?;
                Ok(counted.user + counted.kernel)
            }
            Self::Memory => {
                ensure!(measurement.messages > 0, "a round has no channel");
                Ok(measurement.bytes as f64 / measurement.messages as f64)
            }
            Self::Rate => {
                ensure!(
                    measurement.bytes > 0 && measurement.elapsed_ns > 0,
                    "a round transferred nothing; raise --duration"
                );
                Ok(measurement.bytes as f64 * 1e9 / measurement.elapsed_ns as f64)
            }
        }
    }
}

/// Subjects under the same conditions.
pub struct Case {
    pub suite: &'static str,
    pub title: String,
    pub size: Option<usize>,
    pub placement: Placement,
    pub metric: Metric,
    /// The mechanism with which the others are compared, by its first subject. None: that of the first subject.
    pub reference: Option<&'static str>,
    pub subjects: Vec<Subject>,
    pub skipped: Vec<Skipped>,
}

/// One round of one subject.
pub struct Round {
    pub number: usize,
    pub measurement: Measurement,
    pub samples: Samples,
    /// The value of the metric.
    pub value: f64,
    pub class: Option<Class>,
    pub noisy: bool,
}

impl Round {
    pub(super) fn new(
        number: usize,
        metric: Metric,
        bracketed: Bracketed<Measurement>,
    ) -> Result<Self> {
        let mut measurement = bracketed.value;
        let samples = Samples::from_iter(std::mem::take(&mut measurement.samples));
        Ok(Self {
            number,
            value: metric.value(&measurement, &samples)?,
            measurement,
            samples,
            class: bracketed.class,
            noisy: bracketed.noisy,
        })
    }
}

/// The rounds of one subject.
pub struct Series {
    pub subject: Subject,
    pub rounds: Vec<Round>,
    /// Rounds of other classes, which are not kept.
    pub dropped: usize,
}

impl Series {
    pub fn values(&self) -> Vec<f64> {
        self.rounds.iter().map(|round| round.value).collect()
    }

    pub fn measurements(&self) -> impl Iterator<Item = &Measurement> {
        self.rounds.iter().map(|round| &round.measurement)
    }

    pub fn class(&self) -> Option<Class> {
        class::most_common(self.rounds.iter().filter_map(|round| round.class))
    }

    /// Rounds during which the distance of the processors kept changing.
    pub fn noisy_rounds(&self) -> usize {
        self.rounds.iter().filter(|round| round.noisy).count()
    }

    pub fn spread(&self) -> Spread {
        Spread::of(&self.values()).expect("a series has at least one round")
    }

    /// The ratio within each round in which both have the same class, which cancels disturbances of both.
    pub fn ratios_to(&self, reference: &Self) -> Vec<f64> {
        let ratio = |round: &Round| {
            let same = |other: &&Round| other.number == round.number && other.class == round.class;
            let other = reference.rounds.iter().find(same)?;
            Some(round.value / other.value)
        };
        self.rounds.iter().filter_map(ratio).collect()
    }

    /// A spinning mechanism trades processor time for latency, so its ratio to a sleeping one must be labelled.
    pub fn waits_like(&self, reference: &Self) -> bool {
        self.subject.waiting == reference.subject.waiting
    }

    /// Keeps the rounds of this class, or else those of the most common class.
    pub(super) fn keep_class(&mut self, class: Option<Class>) {
        let has_some = self.rounds.iter().any(|round| round.class == class);
        let class = if has_some { class } else { self.class() };
        let measured = self.rounds.len();
        self.rounds.retain(|round| round.class == class);
        self.dropped = measured - self.rounds.len();
    }
}

pub struct Outcome {
    pub suite: &'static str,
    pub title: String,
    pub size: Option<usize>,
    pub placement: Placement,
    pub metric: Metric,
    /// The label of the reference.
    pub reference: Option<String>,
    /// The class of the rounds that were kept, where processors have distances.
    pub class: Option<Class>,
    pub series: Vec<Series>,
    pub skipped: Vec<Skipped>,
}

impl Outcome {
    /// The reference of this series, if it was measured; None for itself.
    pub fn reference_of(&self, series: &Series) -> Option<&Series> {
        let wanted = self.reference.as_ref();
        let mut all = self.series.iter();
        all.find(|one| Some(&one.subject.label) == wanted)
            .filter(|reference| !std::ptr::eq(*reference, series))
    }

    pub fn is_reference(&self, series: &Series) -> bool {
        self.reference.as_ref() == Some(&series.subject.label)
    }
}

impl Case {
    /// Without subjects.
    pub fn new(suite: &'static str, title: String, placement: Placement, metric: Metric) -> Self {
        Self {
            suite,
            title,
            size: None,
            placement,
            metric,
            reference: None,
            subjects: Vec::new(),
            skipped: Vec::new(),
        }
    }

    /// The label of the reference, whether it can be measured or not.
    pub(super) fn reference_label(&self) -> Option<String> {
        let is_reference = |subject: &&Subject| {
            self.reference
                .is_none_or(|reference| reference == subject.mechanism)
        };
        let found = self.subjects.iter().find(is_reference);
        found.map(|subject| subject.label.clone())
    }

    /// Keeps the subjects of these mechanisms.
    pub fn only(mut self, mechanisms: &[&str]) -> Self {
        self.subjects
            .retain(|subject| mechanisms.contains(&subject.mechanism));
        self.skipped
            .retain(|skip| mechanisms.contains(&skip.mechanism));
        self
    }

    pub fn steps(&self, rounds: usize) -> u64 {
        (self.subjects.len() * rounds) as u64
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A measurement with this value, both as a latency and as a rate.
    pub fn measurement(value: f64) -> Measurement {
        Measurement {
            samples: vec![value as u64],
            messages: 10,
            bytes: value as u64,
            elapsed_ns: 1_000_000_000,
            cpu_ns: 500,
            ..Measurement::default()
        }
    }

    /// Never measured.
    struct Unused;

    impl Job for Unused {
        fn check(&self) -> Result<()> {
            unreachable!("only its results are used")
        }

        fn measure(&self) -> Result<Measurement> {
            unreachable!("only its results are used")
        }
    }

    /// A series with these values.
    pub fn series(mechanism: &'static str, waiting: Waiting, values: &[f64]) -> Series {
        let round = |(number, &value): (usize, &f64)| Round {
            number,
            measurement: measurement(value),
            samples: [value as u64].into_iter().collect(),
            value,
            class: None,
            noisy: false,
        };
        Series {
            subject: Subject::new(mechanism, mechanism.into(), waiting, Unused),
            rounds: values.iter().enumerate().map(round).collect(),
            dropped: 0,
        }
    }

    /// pipe(2) and sluice-pipe, both sleeping, and a skipped mechanism.
    pub fn outcome(metric: Metric, theirs: &[f64], ours: &[f64]) -> Outcome {
        Outcome {
            suite: "rtt",
            title: "1 B same-cpu".into(),
            size: Some(1),
            placement: Placement::SameCpu,
            metric,
            reference: Some("pipe".into()),
            class: None,
            series: vec![
                series("pipe", Waiting::Sleep, theirs),
                series("sluice-pipe", Waiting::Sleep, ours),
            ],
            skipped: vec![Skipped::unavailable("cacheline", "spins")],
        }
    }

    #[test]
    fn spinning_and_sleeping_are_distinguished() {
        let sleeper = series("a", Waiting::Sleep, &[1.0]);
        assert!(series("b", Waiting::Sleep, &[1.0]).waits_like(&sleeper));
        assert!(!series("b", Waiting::Spin, &[1.0]).waits_like(&sleeper));
    }

    #[test]
    fn neighbours_are_named_in_the_label() {
        assert_eq!(Neighbours::NONE.to_string(), "alone");
        let stalled = Neighbours {
            pairs: 7,
            activity: Some(Activity::Stalled),
        };
        assert_eq!(stalled.to_string(), "beside 7 stalled");
    }

    #[test]
    fn a_cost_is_the_processor_time_of_a_message() {
        assert_eq!(value(Metric::Cost, &measurement(1.0)).unwrap(), 50.0);
    }

    fn value(metric: Metric, measurement: &Measurement) -> Result<f64> {
        metric.value(measurement, &Samples::from_iter([]))
    }

    #[test]
    fn a_time_is_that_of_a_message_and_its_inverse_a_rate() {
        assert_eq!(value(Metric::Time, &measurement(1.0)).unwrap(), 1e8);
        assert_eq!(value(Metric::Operations, &measurement(1.0)).unwrap(), 10.0);
    }

    #[test]
    fn a_round_without_a_sample_is_an_error() {
        assert!(value(Metric::Latency, &Measurement::default()).is_err());
        assert!(value(Metric::Cost, &Measurement::default()).is_err());
        assert!(value(Metric::Time, &Measurement::default()).is_err());
        assert!(value(Metric::Rate, &Measurement::default()).is_err());
        assert!(value(Metric::Operations, &Measurement::default()).is_err());
        assert!(value(Metric::Instructions, &Measurement::default()).is_err());
    }

    #[test]
    fn instructions_are_those_of_programs_and_of_the_kernel() {
        let counted = Measurement {
            instructions: Some(Instructions {
                user: 120.5,
                kernel: 4000.0,
            }),
            ..Measurement::default()
        };
        assert_eq!(value(Metric::Instructions, &counted).unwrap(), 4120.5);
    }
}
