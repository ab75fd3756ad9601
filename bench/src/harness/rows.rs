// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results in machine-readable rows, the source of tables, plots and comparisons.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use sluice_testkit::clock;
use sluice_testkit::host::Host;
use sluice_testkit::spread::Spread;

use super::class::Class;
use super::file;
use super::pinning::Placement;
use super::rounds::{
    Instructions, Measurement, Metric, Neighbours, Outcome, ReceiverState, Round, Series, Skipped,
};
use super::samples::{Samples, Summary, distribution_function, summarize};
use super::waiting::Waiting;

/// The unit of rates of operations.
pub const OPERATIONS: &str = "operations/s";
/// The unit of counts of executed instructions.
pub const INSTRUCTIONS: &str = "instructions";
/// The unit of amounts of memory.
pub const BYTES: &str = "bytes";

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    pub host: Host,
    /// What reading the clock costs, which each sample contains once.
    #[serde(default)]
    pub clock_ns: u64,
    /// The versions of what is compared, by name.
    #[serde(default)]
    pub versions: BTreeMap<String, String>,
    pub rows: Vec<Row>,
    /// The day of the measurement in UTC.
    #[serde(default)]
    pub date: String,
}

/// One subject under one set of conditions. Fields that do not apply are absent.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Row {
    pub suite: String,
    pub mechanism: String,
    /// The name in tables and plots, which includes the way of waiting.
    pub label: String,
    /// The conditions in words. Rows with the same suite and title are compared with each other.
    pub title: String,
    /// Message size in bytes.
    pub size: Option<usize>,
    /// Messages per call, in comparisons of batches.
    pub batch: Option<usize>,
    pub receivers: Option<usize>,
    /// What the receivers do while messages are sent, where that is a condition.
    pub receiver_state: Option<ReceiverState>,
    /// Writers of one channel, where several processes share it.
    pub writers: Option<usize>,
    /// The operation that is measured, and for calls by name the number of names in the scope and of scopes.
    pub operation: Option<String>,
    pub names: Option<usize>,
    pub scopes: Option<usize>,
    /// The pairs beside a measured one; in the file only as a part of the label.
    #[serde(skip)]
    pub neighbours: Option<Neighbours>,
    /// The rate at which messages become due: percent of the saturation of the reference, and messages per second.
    pub load_percent: Option<u32>,
    pub load_rate: Option<f64>,
    pub processes: Option<usize>,
    pub placement: Option<Placement>,
    pub probe_class: Option<Class>,
    pub waiting: Option<Waiting>,
    /// The unit of the median: "ns" or "instructions", where less is better, or "bytes/s" or "operations/s", where more is.
    pub unit: Option<String>,
    /// The median over the rounds.
    pub median: Option<f64>,
    /// The smallest and the largest round.
    pub spread: Option<[f64; 2]>,
    /// The rounds that were kept.
    pub rounds: Option<usize>,
    /// The others, of which the processors had another distance.
    pub dropped_rounds: Option<usize>,
    /// There was no round of the class of the other rows of these conditions, so it is not compared.
    pub other_class: Option<bool>,
    /// The ratios of the other rows of these conditions refer to this one.
    pub is_reference: Option<bool>,
    /// Each round with its value, for ratios to other rows.
    pub values: Option<Vec<(usize, f64)>>,
    /// Rounds during which the distance of the processors kept changing.
    pub noisy_rounds: Option<usize>,
    #[serde(flatten)]
    pub distribution: Option<Summary>,
    /// Steps of the distribution function of all samples: nanoseconds, and the share of samples up to that value.
    pub cdf: Option<Vec<(u64, f64)>>,
    pub msgs_per_s: Option<f64>,
    pub bytes_per_s: Option<f64>,
    pub cpu_ns_per_msg: Option<f64>,
    /// The share of all bytes, from 0 to 1, that a process of another pair received.
    pub misdelivered: Option<f64>,
    /// Messages of the busiest writer for each message of the least busy: the median over the rounds.
    pub imbalance: Option<f64>,
    /// Context switches of all processes for each message.
    pub context_switches_per_msg: Option<f64>,
    /// Packets from the kernel that the consumer never received, over all rounds.
    pub lost: Option<u64>,
    /// The frequency of the time stamp counter, where the samples were taken with it: the median over the rounds.
    pub cycles_per_ns: Option<f64>,
    /// Each round with its messages for each commit of the store, where they share commits.
    pub msgs_per_commit: Option<Vec<(usize, f64)>>,
    /// The parts of the median, where instructions per operation were counted: those of programs and of the kernel.
    pub user_instructions: Option<Spread>,
    pub kernel_instructions: Option<Spread>,
    /// The percentiles of each round, where ratios of percentiles are taken within rounds.
    pub percentiles: Option<Vec<Percentiles>>,
    /// Relative to the first subject of the same conditions, taken within each round.
    pub ratio: Option<Ratio>,
    /// Of the adapter of a third-party library.
    pub calibration: Option<Calibration>,
    /// Why there is no result.
    pub skipped: Option<String>,
    /// The result is absent because of a failure.
    pub failed: Option<bool>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    pub to: String,
    /// One of the two spins, the other sleeps.
    pub across_waiting: bool,
    pub median: f64,
    pub min: f64,
    pub max: f64,
    /// Rounds in which both were measured, at the same distance of the processors. Absent in files of earlier versions.
    #[serde(default)]
    pub common_rounds: Option<usize>,
}

/// The speed of an adapter divided by that of its library's own program, taken within each round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// The label of that program.
    pub to: String,
    pub median: f64,
    pub min: f64,
    pub max: f64,
    /// Why the adapter is slower.
    pub reason: Option<String>,
}

/// Percentiles of the samples of one round, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Percentiles {
    pub round: usize,
    pub p50: u64,
    pub p99: u64,
    /// If the round has enough samples for it.
    pub p999: Option<u64>,
}

impl Results {
    pub fn new(host: Host, outcomes: &[Outcome]) -> Self {
        let rows = outcomes.iter().flat_map(rows).collect();
        Self {
            host,
            clock_ns: clock::reading_cost_ns(),
            versions: BTreeMap::new(),
            rows,
            date: clock::today(),
        }
    }

    pub fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        file::write(path, &(text + "\n"), "results", "--json")
    }

    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| {
            format!(
                "cannot read {}; it must be a file that --json wrote",
                path.display()
            )
        })?;
        serde_json::from_str(&text)
            .with_context(|| format!("{} is not a results file of sluice-bench", path.display()))
    }
}

impl Row {
    pub fn is_sluice(&self) -> bool {
        self.mechanism.starts_with("sluice")
    }
}

pub fn rows(outcome: &Outcome) -> Vec<Row> {
    let measured = outcome
        .series
        .iter()
        .map(|series| measured_row(outcome, series));
    let skipped = outcome
        .skipped
        .iter()
        .map(|skip| skipped_row(outcome, skip));
    measured.chain(skipped).collect()
}

fn measured_row(outcome: &Outcome, series: &Series) -> Row {
    let spread = series.spread();
    let samples: Vec<&Samples> = series.rounds.iter().map(|round| &round.samples).collect();
    let population = series.subject.population;
    let sharing = series.subject.sharing;
    Row {
        suite: outcome.suite.into(),
        mechanism: series.subject.mechanism.into(),
        label: series.subject.label.clone(),
        title: outcome.title.clone(),
        size: outcome.size,
        batch: series.subject.batch,
        receivers: match sharing {
            Some(sharing) => Some(sharing.readers),
            None => population.is_none().then_some(1),
        },
        receiver_state: series.subject.receiver_state,
        writers: sharing.map(|sharing| sharing.writers),
        operation: population
            .map(|population| population.operation)
            .or(series.subject.operation)
            .map(String::from),
        names: population.map(|population| population.names),
        scopes: population.map(|population| population.scopes),
        neighbours: series.subject.neighbours,
        load_percent: series.subject.load.map(|load| load.percent),
        load_rate: series.subject.load.map(|load| load.rate),
        processes: Some(series.subject.processes),
        placement: Some(outcome.placement),
        probe_class: series.class(),
        waiting: Some(series.subject.waiting),
        unit: Some(match outcome.metric {
            Metric::Latency | Metric::Cost | Metric::Time => "ns".into(),
            Metric::Rate => "bytes/s".into(),
            Metric::Operations => OPERATIONS.into(),
            Metric::Instructions => INSTRUCTIONS.into(),
            Metric::Memory => BYTES.into(),
        }),
        median: Some(spread.median),
        spread: Some([spread.min, spread.max]),
        rounds: Some(series.rounds.len()),
        dropped_rounds: Some(series.dropped).filter(|&rounds| rounds > 0),
        other_class: Some(series.class() != outcome.class).filter(|&other| other),
        is_reference: Some(outcome.is_reference(series)).filter(|&it_is| it_is),
        values: Some(values(series)),
        noisy_rounds: Some(series.noisy_rounds()).filter(|&rounds| rounds > 0),
        cdf: distribution_function(&samples),
        distribution: summarize(&samples),
        msgs_per_s: per_second(series, |one| one.messages),
        bytes_per_s: per_second(series, |one| one.bytes),
        cpu_ns_per_msg: cpu_per_message(series),
        misdelivered: misdelivered(series),
        imbalance: imbalance(series),
        context_switches_per_msg: context_switches_per_message(series),
        lost: series.measurements().map(|one| one.lost).sum(),
        cycles_per_ns: cycles_per_ns(series),
        msgs_per_commit: messages_per_commit(series),
        user_instructions: instructions(series, |one| one.user),
        kernel_instructions: instructions(series, |one| one.kernel),
        percentiles: percentiles(series),
        ratio: ratio(outcome, series),
        calibration: None,
        skipped: None,
        failed: None,
    }
}

fn skipped_row(outcome: &Outcome, skip: &Skipped) -> Row {
    Row {
        suite: outcome.suite.into(),
        mechanism: skip.mechanism.into(),
        label: skip.label.clone(),
        title: outcome.title.clone(),
        size: outcome.size,
        placement: Some(outcome.placement),
        skipped: Some(skip.reason.clone()),
        failed: Some(skip.failed).filter(|&failed| failed),
        ..Row::default()
    }
}

fn values(series: &Series) -> Vec<(usize, f64)> {
    let rounds = series.rounds.iter();
    rounds.map(|round| (round.number, round.value)).collect()
}

/// The median over the rounds of a count per second.
fn per_second(series: &Series, count: impl Fn(&Measurement) -> u64) -> Option<f64> {
    let rate = |one: &Measurement| {
        (one.elapsed_ns > 0).then(|| count(one) as f64 * 1e9 / one.elapsed_ns as f64)
    };
    let rates: Option<Vec<f64>> = series.measurements().map(rate).collect();
    Some(Spread::of(&rates?)?.median).filter(|rate| *rate > 0.0)
}

/// The median over the rounds.
fn cpu_per_message(series: &Series) -> Option<f64> {
    let of_round = |one: &Measurement| {
        (one.messages > 0 && one.cpu_ns > 0).then(|| one.cpu_ns as f64 / one.messages as f64)
    };
    let rounds: Option<Vec<f64>> = series.measurements().map(of_round).collect();
    Some(Spread::of(&rounds?)?.median)
}

/// The share of bytes that reached another pair, over all rounds.
fn misdelivered(series: &Series) -> Option<f64> {
    let bytes: u64 = series.measurements().map(|one| one.bytes).sum();
    let misdelivered: Option<u64> = series.measurements().map(|one| one.misdelivered).sum();
    misdelivered
        .filter(|_| bytes > 0)
        .map(|misdelivered| misdelivered as f64 / bytes as f64)
}

/// The median over the rounds.
fn imbalance(series: &Series) -> Option<f64> {
    let rounds: Option<Vec<f64>> = series.measurements().map(|one| one.imbalance).collect();
    Some(Spread::of(&rounds?)?.median)
}

/// The median over the rounds.
fn context_switches_per_message(series: &Series) -> Option<f64> {
    let of_round = |one: &Measurement| {
        let switches = one.context_switches.filter(|_| one.messages > 0)?;
        Some(switches as f64 / one.messages as f64)
    };
    let rounds: Option<Vec<f64>> = series.measurements().map(of_round).collect();
    Some(Spread::of(&rounds?)?.median)
}

/// The median over the rounds.
fn cycles_per_ns(series: &Series) -> Option<f64> {
    let rounds: Option<Vec<f64>> = series.measurements().map(|one| one.cycles_per_ns).collect();
    Some(Spread::of(&rounds?)?.median)
}

fn messages_per_commit(series: &Series) -> Option<Vec<(usize, f64)>> {
    let of_round = |round: &Round| {
        let commits = round.measurement.commits.filter(|&commits| commits > 0)?;
        let messages = round.measurement.messages as f64;
        Some((round.number, messages / commits as f64))
    };
    series.rounds.iter().map(of_round).collect()
}

fn instructions(series: &Series, part: impl Fn(Instructions) -> f64) -> Option<Spread> {
    let rounds = series.measurements().map(|one| one.instructions.map(&part));
    Spread::of(&rounds.collect::<Option<Vec<f64>>>()?)
}

fn percentiles(series: &Series) -> Option<Vec<Percentiles>> {
    let of_round = |round: &Round| {
        series
            .subject
            .load
            .map(drop)
            .or(round.measurement.cycles_per_ns.map(drop))?;
        let Summary { p50, p99, p999, .. } = summarize(&[&round.samples])?;
        let p99 = p99?;
        let round = round.number;
        Some(Percentiles {
            round,
            p50,
            p99,
            p999,
        })
    };
    series.rounds.iter().map(of_round).collect()
}

fn ratio(outcome: &Outcome, series: &Series) -> Option<Ratio> {
    let reference = outcome.reference_of(series)?;
    let ratios = series.ratios_to(reference);
    let Spread { median, min, max } = Spread::of(&ratios)?;
    Some(Ratio {
        to: reference.subject.label.clone(),
        across_waiting: !series.waits_like(reference),
        median,
        min,
        max,
        common_rounds: Some(ratios.len()),
    })
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::harness::rounds::tests::{outcome, series};

    fn with_shared_cache(mut outcome: Outcome) -> Outcome {
        let rounds = outcome.series.iter_mut().flat_map(|one| &mut one.rounds);
        rounds.for_each(|round| round.class = Some(Class::SharedCache));
        outcome
    }

    #[test]
    fn fields_that_do_not_apply_are_absent() {
        let rows = rows(&outcome(Metric::Latency, &[10.0], &[5.0]));
        let json = serde_json::to_value(&rows).unwrap();
        assert_eq!(json[0]["mechanism"], "pipe");
        assert_eq!(json[0]["placement"], "same-cpu");
        assert_eq!(json[0]["p50"], 10);
        assert_eq!(json[0]["median"], 10.0);
        assert_eq!(json[0]["cpu_ns_per_msg"], 50.0);
        for absent in [
            "ratio",
            "probe_class",
            "noisy_rounds",
            "misdelivered",
            "skipped",
            "failed",
        ] {
            assert!(json[0].get(absent).is_none(), "{absent}");
        }
        assert_eq!(json[1]["ratio"]["median"], 0.5);
        assert_eq!(json[2]["skipped"], "spins");
        assert!(json[2].get("p50").is_none());
    }

    #[test]
    fn results_survive_writing_and_reading() {
        let outcomes = [with_shared_cache(outcome(
            Metric::Latency,
            &[10.0, 11.0],
            &[5.0, 6.0],
        ))];
        let results = Results::new(Host::probe(), &outcomes);
        assert_eq!(results.rows[0].probe_class, Some(Class::SharedCache));
        let path = std::env::temp_dir().join(format!("sluice-rows-{}.json", std::process::id()));
        results.write(&path).unwrap();
        let read = Results::read(&path);
        fs::remove_file(&path).unwrap();
        assert_eq!(read.unwrap().rows, results.rows);
    }

    #[test]
    fn rounds_of_different_classes_have_no_ratio() {
        let mut outcome = with_shared_cache(outcome(Metric::Latency, &[10.0], &[5.0]));
        assert!(ratio(&outcome, &outcome.series[1]).is_some());
        outcome.series[1].rounds[0].class = Some(Class::Remote);
        assert_eq!(ratio(&outcome, &outcome.series[1]), None);
    }

    #[test]
    fn the_misdelivered_share_covers_all_rounds() {
        let mut outcome = outcome(Metric::Rate, &[10.0, 30.0], &[5.0]);
        assert_eq!(misdelivered(&outcome.series[0]), None);
        for (round, misdelivered) in outcome.series[0].rounds.iter_mut().zip([4, 6]) {
            round.measurement.misdelivered = Some(misdelivered);
        }
        assert_eq!(misdelivered(&outcome.series[0]), Some(0.25));
    }

    #[test]
    fn imbalance_is_a_median_and_switches_cover_all_rounds() {
        let mut outcome = outcome(Metric::Rate, &[10.0, 10.0, 10.0], &[5.0]);
        assert_eq!(imbalance(&outcome.series[0]), None);
        assert_eq!(context_switches_per_message(&outcome.series[0]), None);
        let rounds = outcome.series[0].rounds.iter_mut();
        for (round, (imbalance, switches)) in rounds.zip([(1.5, 3), (9.0, 6), (1.2, 0)]) {
            round.measurement.imbalance = Some(imbalance);
            round.measurement.context_switches = Some(switches);
        }
        assert_eq!(imbalance(&outcome.series[0]), Some(1.5));
        assert_eq!(context_switches_per_message(&outcome.series[0]), Some(0.3));
    }

    #[test]
    fn losses_cover_all_rounds_and_percentiles_are_those_of_each() {
        let mut outcome = outcome(Metric::Latency, &[10.0, 20.0], &[5.0]);
        assert_eq!(rows(&outcome)[0].percentiles, None);
        for (round, lost) in outcome.series[0].rounds.iter_mut().zip([2, 1]) {
            round.measurement.lost = Some(lost);
            round.measurement.cycles_per_ns = Some(2.5);
            round.samples = std::iter::repeat_n(round.value as u64, 1000).collect();
        }
        let row = &rows(&outcome)[0];
        assert_eq!((row.lost, row.cycles_per_ns), (Some(3), Some(2.5)));
        let second = Percentiles {
            round: 1,
            p50: 20,
            p99: 20,
            p999: None,
        };
        assert_eq!(row.percentiles.as_ref().unwrap()[1], second);
    }

    #[test]
    fn messages_per_commit_are_those_of_each_round() {
        let mut outcome = outcome(Metric::Operations, &[10.0, 20.0], &[5.0]);
        assert_eq!(rows(&outcome)[0].msgs_per_commit, None);
        for (round, commits) in outcome.series[0].rounds.iter_mut().zip([2, 5]) {
            round.measurement.commits = Some(commits);
        }
        let expected = vec![(0, 5.0), (1, 2.0)];
        assert_eq!(rows(&outcome)[0].msgs_per_commit, Some(expected));
    }

    #[test]
    fn a_ratio_of_spinning_to_sleeping_is_labelled() {
        let mut outcome = outcome(Metric::Latency, &[10.0], &[5.0]);
        outcome.series[1] = series("sluice-pipe", Waiting::Spin, &[5.0]);
        assert!(ratio(&outcome, &outcome.series[1]).unwrap().across_waiting);
    }
}
