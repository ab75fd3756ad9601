// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is measured, under which conditions, and the results of each round.

use anyhow::{Context, Result, ensure};

use super::class::{self, Bracketed, Class};
use super::figures::{Axes, KERNEL, USER, Unit, Value, Values};
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
    /// The conditions beside those of the case, such as the number of receivers.
    pub axes: Axes,
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
            axes: Axes::new(),
            job: Box::new(job),
        }
    }

    pub fn axis(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.axes.insert(name.into(), value.into());
        self
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
    pub fn unit(self) -> Unit {
        match self {
            Self::Latency | Self::Cost | Self::Time => Unit::Nanoseconds,
            Self::Rate => Unit::BytesPerSecond,
            Self::Operations => Unit::OperationsPerSecond,
            Self::Instructions => Unit::Instructions,
            Self::Memory => Unit::Bytes,
        }
    }

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
                let [user, kernel] = [USER, KERNEL].map(|part| measurement.figure(part));
                let parts = user
                    .zip(kernel)
                    .context("a round counted no instructions")?;
                Ok(parts.0 + parts.1)
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
    /// The compared value of each round.
    pub fn values(&self) -> Option<Values> {
        let rounds = self.rounds.iter();
        Values::of(rounds.map(|round| (round.number, round.value)))
    }

    pub fn class(&self) -> Option<Class> {
        class::most_common(self.rounds.iter().filter_map(|round| round.class))
    }

    /// Rounds during which the distance of the processors kept changing.
    pub fn noisy_rounds(&self) -> usize {
        self.rounds.iter().filter(|round| round.noisy).count()
    }

    /// The ratio within each round in which both have the same class, which cancels disturbances of both.
    pub fn ratios_to(&self, reference: &Self) -> Option<Values> {
        let ratio = |round: &Round| {
            let same = |other: &&Round| other.number == round.number && other.class == round.class;
            let other = reference.rounds.iter().find(same)?;
            Some((round.number, round.value / other.value))
        };
        Values::of(self.rounds.iter().filter_map(ratio))
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

    fn value(metric: Metric, measurement: &Measurement) -> Result<f64> {
        metric.value(measurement, &Samples::from_iter([]))
    }

    #[test]
    fn each_metric_has_its_value_and_an_empty_round_none() {
        let counted = measurement(1.0).with(USER, 120.5).with(KERNEL, 4000.0);
        for (metric, expected) in [
            (Metric::Cost, 50.0),
            (Metric::Time, 1e8),
            (Metric::Operations, 10.0),
            (Metric::Rate, 1.0),
            (Metric::Instructions, 4120.5),
            (Metric::Memory, 0.1),
        ] {
            assert_eq!(value(metric, &counted).unwrap(), expected, "{metric:?}");
            assert!(value(metric, &Measurement::default()).is_err());
        }
        assert!(value(Metric::Latency, &Measurement::default()).is_err());
    }
}
