// SPDX-License-Identifier: MIT OR Apache-2.0
//! Each round measures every subject once, in an order that is drawn anew for each round, so that neither a machine that slows
//! down nor what a subject leaves behind affects one of them more than the others.

use std::fmt;
use std::ops::Range;

use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use serde::{Deserialize, Serialize};
use sluice_testkit::interrupt;
use sluice_testkit::spread::Spread;

use super::class::{self, Bracketed, Class, NoProbe, Probe};
use super::pinning::Placement;
use super::progress::Progress;
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
    fn new(number: usize, metric: Metric, bracketed: Bracketed<Measurement>) -> Result<Self> {
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
    fn keep_class(&mut self, class: Option<Class>) {
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
    fn reference_label(&self) -> Option<String> {
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

    fn start(mut self, rounds: usize, progress: &mut Progress) -> Result<Running> {
        let reference = self.reference_label();
        let series = self.checked(rounds, progress)?;
        Ok(Running {
            case: self,
            reference,
            series,
        })
    }

    /// A mechanism that fails its check is not measured.
    fn checked(&mut self, rounds: usize, progress: &mut Progress) -> Result<Vec<Option<Series>>> {
        let mut series = Vec::new();
        for subject in std::mem::take(&mut self.subjects) {
            interrupt::check()?;
            let what = format!("{} {}", self.title, subject.label);
            progress.set_message(&format!("checking {what}"));
            match subject.job.check() {
                Ok(()) => series.push(Some(Series {
                    subject,
                    rounds: Vec::new(),
                    dropped: 0,
                })),
                Err(error) => {
                    progress.advance(&what, rounds as u64);
                    self.drop_subject(subject, &error)?;
                }
            }
        }
        Ok(series)
    }

    /// Drops a subject; the others continue.
    fn drop_subject(&mut self, subject: Subject, error: &anyhow::Error) -> Result<()> {
        interrupt::check()?;
        self.skipped.push(Skipped {
            mechanism: subject.mechanism,
            label: subject.label,
            reason: format!("{error:#}"),
            failed: true,
        });
        Ok(())
    }
}

/// A case that is being measured.
struct Running {
    case: Case,
    reference: Option<String>,
    /// None: it has failed.
    series: Vec<Option<Series>>,
}

impl Running {
    fn series(&self) -> impl Iterator<Item = &Series> {
        self.series.iter().flatten()
    }

    /// The turn of one subject in the first one of these rounds. A failure drops it from all of them.
    fn take_turn(
        &mut self,
        subject: usize,
        rounds: Range<usize>,
        probe: &dyn Probe,
        now: &mut Option<Class>,
        progress: &mut Progress,
    ) -> Result<()> {
        let Some(mut one) = self.series[subject].take() else {
            return Ok(());
        };
        let what = format!("{} {}", self.case.title, one.subject.label);
        progress.set_message(&what);
        match one.measure_round(rounds.start, self.case.metric, probe, now) {
            Ok(()) => {
                progress.advance(&what, 1);
                self.series[subject] = Some(one);
                Ok(())
            }
            Err(error) => {
                progress.advance(&what, rounds.len() as u64);
                self.case.drop_subject(one.subject, &error)
            }
        }
    }

    /// Prefers rounds of this class.
    fn outcome(self, class: Option<Class>) -> Outcome {
        let case = self.case;
        let mut series: Vec<_> = self.series.into_iter().flatten().collect();
        series.iter_mut().for_each(|one| one.keep_class(class));
        Outcome {
            suite: case.suite,
            title: case.title,
            size: case.size,
            placement: case.placement,
            metric: case.metric,
            reference: self.reference,
            class,
            series,
            skipped: case.skipped,
        }
    }
}

/// Case and subject of each turn of a round, which are shuffled for each.
fn turns(running: &[Running]) -> Vec<(usize, usize)> {
    let of_case = |(case, one): (usize, &Running)| {
        let subjects = 0..one.series.len();
        subjects.map(move |subject| (case, subject))
    };
    running.iter().enumerate().flat_map(of_case).collect()
}

/// The orders of the turns: the same in each run, so that runs can be compared, but others in each suite and case, so that a
/// mechanism does not always follow the same one.
fn orders(first: &Case) -> Rng {
    let name = first.suite.bytes().chain(first.title.bytes());
    Rng::with_seed(name.fold(1, |seed, byte| {
        seed.wrapping_mul(31).wrapping_add(byte.into())
    }))
}

/// Measures cases of one placement. Each round measures all of them, so that values of different cases can also be compared
/// within rounds.
pub fn run_together(
    cases: Vec<Case>,
    rounds: usize,
    probe: &dyn Probe,
    progress: &mut Progress,
) -> Result<Vec<Outcome>> {
    let Some(first) = cases.first() else {
        return Ok(Vec::new());
    };
    let probe = match (first.placement, first.metric) {
        // The number of instructions does not depend on the distance.
        (Placement::SameCpu, _) | (_, Metric::Instructions | Metric::Memory) => &NoProbe,
        (Placement::TwoCpus, _) => probe,
    };
    let mut random = orders(first);
    let running = cases.into_iter().map(|case| case.start(rounds, progress));
    let mut running = running.collect::<Result<Vec<_>>>()?;
    let mut now = probe.class()?;
    let mut turns = turns(&running);
    for round in 0..rounds {
        random.shuffle(&mut turns);
        for &(case, subject) in &turns {
            running[case].take_turn(subject, round..rounds, probe, &mut now, progress)?;
        }
    }
    let series = running.iter().flat_map(|one| one.series());
    let rounds = series.flat_map(|one| &one.rounds);
    let classes: Vec<_> = rounds.filter_map(|round| round.class).collect();
    let class = class::most_common(classes.into_iter());
    let outcomes = running.into_iter().map(|one| one.outcome(class));
    Ok(outcomes.collect())
}

impl Series {
    fn measure_round(
        &mut self,
        round: usize,
        metric: Metric,
        probe: &dyn Probe,
        now: &mut Option<Class>,
    ) -> Result<()> {
        let bracketed = class::bracket(probe, now, || self.subject.job.measure())?;
        self.rounds.push(Round::new(round, metric, bracketed)?);
        Ok(())
    }
}

#[cfg(test)]
pub mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    /// Returns recorded values, one per round; None is a failure.
    struct Script {
        name: &'static str,
        notes: Rc<RefCell<Vec<&'static str>>>,
        values: RefCell<Vec<Option<f64>>>,
    }

    impl Job for Script {
        fn check(&self) -> Result<()> {
            self.notes.borrow_mut().push("check");
            Ok(())
        }

        fn measure(&self) -> Result<Measurement> {
            self.notes.borrow_mut().push(self.name);
            let next = self.values.borrow_mut().pop().flatten();
            Ok(measurement(next.context("it broke")?))
        }
    }

    /// A measurement with this value, both as a latency and as a rate.
    fn measurement(value: f64) -> Measurement {
        Measurement {
            samples: vec![value as u64],
            messages: 10,
            bytes: value as u64,
            elapsed_ns: 1_000_000_000,
            cpu_ns: 500,
            ..Measurement::default()
        }
    }

    fn unused_job(mechanism: &'static str) -> Script {
        Script {
            name: mechanism,
            notes: Rc::default(),
            values: RefCell::default(),
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
            subject: Subject::new(mechanism, mechanism.into(), waiting, unused_job(mechanism)),
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

    type Notes = Rc<RefCell<Vec<&'static str>>>;

    /// A case of subjects with these values.
    fn case(notes: &Notes, subjects: &[(&'static str, &[Option<f64>])]) -> Case {
        let subject = |&(name, values): &(&'static str, &[Option<f64>])| {
            let job = Script {
                name,
                notes: Rc::clone(notes),
                values: RefCell::new(values.iter().rev().copied().collect()),
            };
            Subject::new(name, name.into(), Waiting::Sleep, job)
        };
        Case {
            subjects: subjects.iter().map(subject).collect(),
            ..Case::new(
                "throughput",
                "test".into(),
                Placement::SameCpu,
                Metric::Rate,
            )
        }
    }

    /// The notes of each round, sorted: the order is random.
    fn sorted_rounds(notes: &[&'static str], size: usize) -> Vec<Vec<&'static str>> {
        let sorted = |round: &[&'static str]| {
            let mut round = round.to_vec();
            round.sort_unstable();
            round
        };
        notes.chunks(size).map(sorted).collect()
    }

    fn run_cases(cases: Vec<Case>, rounds: usize) -> Vec<Outcome> {
        run_together(cases, rounds, &NoProbe, &mut Progress::new(4)).unwrap()
    }

    /// Runs two subjects with these values, and returns the order of their calls.
    fn run_two(rounds: [&[Option<f64>]; 2]) -> (Outcome, Vec<&'static str>) {
        let notes = Notes::default();
        let case = case(&notes, &[("a", rounds[0]), ("b", rounds[1])]);
        let outcome = run_cases(vec![case], rounds[0].len()).remove(0);
        (outcome, notes.take())
    }

    #[test]
    fn subjects_are_checked_first_and_then_measured_in_rounds() {
        let (outcome, notes) = run_two([&[Some(2.0); 3], &[Some(4.0); 3]]);
        assert_eq!(notes[..2], ["check"; 2]);
        assert_eq!(sorted_rounds(&notes[2..], 2), [["a", "b"]; 3]);
        assert_eq!(outcome.series[1].values(), [4.0; 3]);
        let ratios = outcome.series[1].ratios_to(&outcome.series[0]);
        assert_eq!(ratios, [2.0; 3]);
    }

    #[test]
    fn a_subject_that_fails_is_dropped_and_the_others_continue() {
        let (outcome, notes) = run_two([&[Some(1.0); 3], &[Some(1.0), None, Some(1.0)]]);
        assert_eq!(sorted_rounds(&notes[2..6], 2), [["a", "b"]; 2]);
        assert_eq!(notes[6..], ["a"]);
        assert_eq!(outcome.series.len(), 1);
        let skip = &outcome.skipped[0];
        assert!(skip.failed && skip.label == "b" && skip.reason.contains("it broke"));
    }

    #[test]
    fn a_round_measures_all_cases_that_run_together() {
        let notes = Notes::default();
        let values = [Some(1.0); 2];
        let cases = vec![
            case(&notes, &[("a", &values), ("b", &values)]),
            case(&notes, &[("c", &values)]),
        ];
        let outcomes = run_cases(cases, 2);
        let notes = notes.take();
        assert_eq!(notes[..3], ["check"; 3]);
        assert_eq!(sorted_rounds(&notes[3..], 3), [["a", "b", "c"]; 2]);
        assert_eq!(outcomes[1].series[0].rounds[1].number, 1);
    }

    #[test]
    fn rounds_of_the_rarer_class_are_dropped() {
        let (outcome, _) = run_two([&[Some(1.0); 3], &[Some(2.0); 3]]);
        let mut series = outcome.series;
        for (round, class) in
            series[0]
                .rounds
                .iter_mut()
                .zip([Class::SharedCache, Class::Remote, Class::Remote])
        {
            round.class = Some(class);
        }
        series[0].keep_class(Some(Class::SharedCache));
        assert_eq!((series[0].rounds.len(), series[0].dropped), (1, 2));
        assert_eq!(series[0].class(), Some(Class::SharedCache));
        // Without a round of it, those of another one are kept.
        series[0].keep_class(Some(Class::SameCore));
        assert_eq!(series[0].class(), Some(Class::SharedCache));
    }

    #[test]
    fn the_order_differs_from_round_to_round() {
        let notes = Notes::default();
        let values = [Some(1.0); 8];
        let names = ["a", "b", "c", "d", "e"];
        let subjects = names.map(|name| (name, &values[..]));
        run_cases(vec![case(&notes, &subjects)], 8);
        let notes = notes.take();
        let orders: Vec<_> = notes[5..].chunks(5).collect();
        assert!(orders.iter().any(|order| *order != orders[0]), "{orders:?}");
        let first = orders.iter().filter(|order| order[0] == "a").count();
        assert!(first < 8, "{orders:?}");
    }

    #[test]
    fn a_reference_that_fails_is_replaced_by_none() {
        let broken: &[Option<f64>] = &[None; 2];
        let (outcome, _) = run_two([broken, &[Some(1.0); 2]]);
        assert_eq!(outcome.reference.as_deref(), Some("a"));
        assert!(outcome.reference_of(&outcome.series[0]).is_none());
    }

    #[test]
    fn a_named_reference_need_not_be_the_first() {
        let notes = Notes::default();
        let values = [Some(1.0); 2];
        let mut case = case(&notes, &[("a", &values), ("b", &values)]);
        case.reference = Some("b");
        let outcome = run_cases(vec![case], 2).remove(0);
        let reference = outcome.reference_of(&outcome.series[0]).unwrap();
        assert_eq!(reference.subject.mechanism, "b");
        assert!(outcome.reference_of(reference).is_none());
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
