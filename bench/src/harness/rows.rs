// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results in machine-readable rows, the source of tables, plots and comparisons.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Not;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use sluice_testkit::clock;
use sluice_testkit::host::Host;
use sluice_testkit::units;

use super::class::{Class, most_common};
use super::figures::{
    Axes, BYTES_PER_SECOND, CPU_PER_MESSAGE, MESSAGES_PER_SECOND, P99, P999, Unit, Values,
};
use super::pinning::Placement;
use super::rounds::{Case, Measurement};
use super::samples::{Change, Samples, Summary, summarize};
use super::turns::{Round, Series};
use super::waiting::Waiting;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    pub host: Host,
    /// What reading the clock costs, which each sample contains once.
    pub clock_ns: u64,
    pub versions: BTreeMap<String, String>,
    pub rows: Vec<Row>,
    /// The day of the measurement in UTC.
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
    pub size: Option<usize>,
    pub placement: Option<Placement>,
    pub processes: Option<usize>,
    pub waiting: Option<Waiting>,
    /// Other conditions, such as the number of receivers.
    #[serde(skip_serializing_if = "Axes::is_empty")]
    pub axes: Axes,
    pub unit: Option<Unit>,
    /// What is compared, over the rounds that were kept.
    #[serde(flatten)]
    pub value: Option<Values>,
    /// What else was measured, by the names in [`super::figures`].
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub figures: BTreeMap<String, Values>,
    /// The other rounds, in which the processors had another distance.
    pub dropped_rounds: Option<usize>,
    pub probe_class: Option<Class>,
    /// There was no round of the class of the other rows of these conditions, so it is not compared.
    #[serde(skip_serializing_if = "Not::not")]
    pub other_class: bool,
    /// Rounds during which the distance of the processors kept changing.
    pub noisy_rounds: Option<usize>,
    #[serde(flatten)]
    pub distribution: Option<Summary>,
    /// The ratios of the other rows of these conditions refer to this one.
    #[serde(skip_serializing_if = "Not::not")]
    pub is_reference: bool,
    pub ratio: Option<Ratio>,
    /// Of the adapter of a third-party library.
    pub calibration: Option<Calibration>,
    pub skipped: Option<String>,
    /// The result is absent because of a failure.
    #[serde(skip_serializing_if = "Not::not")]
    pub failed: bool,
}

/// Relative to the reference, within the rounds in which both were measured at the same distance of the processors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    pub to: String,
    /// One of the two spins, the other sleeps.
    pub across_waiting: bool,
    #[serde(flatten)]
    pub values: Values,
}

/// The speed of an adapter divided by the speed of its library's own program, taken within each round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    pub to: String,
    pub median: f64,
    pub spread: [f64; 2],
    /// Why the adapter is slower.
    pub reason: Option<String>,
}

impl Results {
    pub fn new(host: Host, rows: Vec<Row>) -> Self {
        Self {
            host,
            clock_ns: clock::reading_cost_ns(),
            versions: BTreeMap::new(),
            rows,
            date: clock::today(),
        }
    }

    pub fn read(path: &Path) -> Result<Self> {
        let (text, path) = (fs::read_to_string(path), path.display());
        let text = text
            .with_context(|| format!("cannot read {path}; it must be a file that --json wrote"))?;
        serde_json::from_str(&text).with_context(|| {
            format!("{path} is not a results file of this version of sluice-bench")
        })
    }
}

impl Row {
    pub fn is_sluice(&self) -> bool {
        self.mechanism.starts_with("sluice")
    }

    pub fn is_measured(&self) -> bool {
        self.value.is_some()
    }

    pub fn median(&self) -> Option<f64> {
        Some(self.value.as_ref()?.median)
    }

    pub fn rounds(&self) -> usize {
        self.value.as_ref().map_or(0, |value| value.values.len())
    }

    pub fn median_of(&self, figure: &str) -> Option<f64> {
        Some(self.figures.get(figure)?.median)
    }

    pub fn is_noisy(&self) -> bool {
        self.noisy_rounds.is_some()
    }

    pub fn less_is_better(&self) -> bool {
        self.unit.is_some_and(Unit::less_is_better)
    }

    /// The ratio of the compared values within each round; None without a round of both, and for different classes.
    pub fn ratio_within_rounds(&self, to: &Self) -> Option<Values> {
        let is_of_class = self.probe_class == to.probe_class;
        let ours = self.value.as_ref().filter(|_| is_of_class)?;
        ours.ratio(to.value.as_ref()?)
    }

    /// Adds the ratio to the reference of the same conditions, unless it is this row.
    pub fn compare_with(&mut self, reference: &Self) {
        let values = self.ratio_within_rounds(reference);
        self.ratio = values.filter(|_| !self.is_reference).map(|values| Ratio {
            to: reference.label.clone(),
            across_waiting: self.waiting != reference.waiting,
            values,
        });
    }

    pub fn median_text(&self) -> Option<String> {
        Some(self.unit?.text(self.median()?))
    }

    pub fn range_text(&self) -> Option<String> {
        Some(self.unit?.range(self.value.as_ref()?.spread))
    }

    pub fn ratio_texts(&self) -> Option<[String; 2]> {
        let values = &self.ratio.as_ref()?.values;
        let [min, max] = values.spread;
        Some([units::ratio(values.median), units::ratio_range(min, max)])
    }

    /// The ratio and its range, inverted where necessary so that more is better.
    pub fn times_better(&self) -> Option<(f64, [f64; 2])> {
        let values = &self.ratio.as_ref()?.values;
        let [min, max] = values.spread;
        Some(match self.less_is_better() {
            true => (1.0 / values.median, [1.0 / max, 1.0 / min]),
            false => (values.median, [min, max]),
        })
    }

    pub fn reference<'a>(&self, rows: &'a [Self]) -> Option<&'a Self> {
        let to = &self.ratio.as_ref()?.to;
        let is_it = |row: &&Self| (&row.suite, &row.title) == (&self.suite, &self.title);
        rows.iter().filter(is_it).find(|row| row.label == *to)
    }

    /// In a word: "faster", or "fewer" where instructions are compared.
    pub fn change_name(&self, change: Change) -> &'static str {
        match (self.unit, change) {
            (Some(Unit::Instructions), Change::Faster) => "fewer",
            (Some(Unit::Bytes), Change::Faster) => "less",
            (Some(Unit::Instructions | Unit::Bytes), Change::Slower) => "more",
            _ => change.name(),
        }
    }

    /// The number of rounds that the ratio is from, if that is too small for a verdict although more were measured.
    pub fn few_common_rounds(&self) -> Option<usize> {
        const LEAST: usize = 3;
        let measured = self.rounds() + self.dropped_rounds.unwrap_or(0);
        let common = self.ratio.as_ref()?.values.values.len();
        (common < LEAST.min(measured)).then_some(common)
    }

    /// The comparison with the reference; None if there is none, or too few rounds of both.
    pub fn change(&self) -> Option<Change> {
        let spread = self.ratio.as_ref()?.values.spread;
        let is_enough = self.few_common_rounds().is_none();
        is_enough.then(|| Change::of_ratios(spread, self.less_is_better()))
    }
}

/// The rows of the cases that ran together. `class` is the most common class of all rounds.
pub fn rows(cases: &[Case], all: &[Series], class: Option<Class>) -> Vec<Row> {
    let of_case = |(number, case): (usize, &Case)| {
        let series = all.iter().filter(move |one| one.case == number);
        let failed = series.clone().filter_map(|one| one.failure.as_ref());
        let skipped = case.skipped.iter().chain(failed);
        let measured = series.filter(|one| one.failure.is_none());
        let mut rows: Vec<Row> = measured.map(|one| measured_row(case, one, class)).collect();
        if let Some(reference) = rows.iter().find(|row| row.is_reference).cloned() {
            rows.iter_mut().for_each(|row| row.compare_with(&reference));
        }
        rows.extend(skipped.map(|skip| Row {
            skipped: Some(skip.reason.clone()),
            failed: skip.failed,
            ..row(case, skip.mechanism, &skip.label)
        }));
        rows
    };
    cases.iter().enumerate().flat_map(of_case).collect()
}

fn row(case: &Case, mechanism: &str, label: &str) -> Row {
    Row {
        suite: case.suite.into(),
        mechanism: mechanism.into(),
        label: label.into(),
        title: case.title.clone(),
        size: case.size,
        placement: Some(case.placement),
        ..Row::default()
    }
}

/// Of the rounds of this class if there are any, or else of the most common class of the series.
fn measured_row(case: &Case, series: &Series, class: Option<Class>) -> Row {
    let all = series.rounds.iter();
    let has_some = all.clone().any(|round| round.class == class);
    let own_class = most_common(all.clone().filter_map(|round| round.class));
    let kept_class = if has_some { class } else { own_class };
    let rounds: Vec<&Round> = all.filter(|round| round.class == kept_class).collect();
    let samples: Vec<&Samples> = rounds.iter().map(|round| &round.samples).collect();
    let count = |count: usize| Some(count).filter(|&count| count > 0);
    let subject = &series.subject;
    Row {
        processes: Some(case.processes),
        waiting: Some(subject.waiting),
        axes: case.axes.clone(),
        unit: Some(case.metric.unit()),
        value: Values::of(rounds.iter().map(|round| (round.number, round.value))),
        figures: common_figures(&rounds),
        dropped_rounds: count(series.rounds.len() - rounds.len()),
        probe_class: kept_class,
        other_class: kept_class != class,
        noisy_rounds: count(rounds.iter().filter(|round| round.is_noisy).count()),
        distribution: summarize(&samples),
        is_reference: series.is_reference,
        ..row(case, subject.mechanism, &subject.label)
    }
}

/// The figures of the suite, and the figures that follow from what each suite measures.
pub fn figures(round: &Measurement, samples: &Samples) -> Vec<(&'static str, f64)> {
    let summary = summarize(&[samples]);
    let percentile = |of: fn(&Summary) -> Option<u64>| Some(of(summary.as_ref()?)? as f64);
    let derived = [
        (CPU_PER_MESSAGE, round.per_message(round.cpu_ns)),
        (MESSAGES_PER_SECOND, round.per_second(round.messages)),
        (BYTES_PER_SECOND, round.per_second(round.bytes)),
        (P99, percentile(|all| all.p99)),
        (P999, percentile(|all| all.p999)),
    ];
    let derived = derived.into_iter();
    let derived = derived.filter_map(|(name, value)| Some((name, value?)));
    round.figures.iter().copied().chain(derived).collect()
}

fn common_figures(rounds: &[&Round]) -> BTreeMap<String, Values> {
    let mut figures: BTreeMap<&str, Vec<(usize, f64)>> = BTreeMap::new();
    for round in rounds {
        for (name, value) in &round.figures {
            let values = figures.entry(name).or_default();
            values.push((round.number, *value));
        }
    }
    figures.retain(|_, values| values.len() == rounds.len());
    let figures = figures.into_iter();
    let figures =
        figures.filter_map(|(name, all)| Some((name.into(), Values::of(all.into_iter())?)));
    figures.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::figures::Value;
    use crate::harness::rounds::Metric;
    use crate::harness::turns::tests::rows_of;

    #[test]
    fn fields_that_do_not_apply_are_absent_and_the_others_can_be_read_again() {
        let mut rows = rows_of(Metric::Latency, &[10.0], &[5.0]);
        rows[1].axes.insert("receivers".into(), 16.into());
        let json = serde_json::to_value(&rows).unwrap();
        let read: Vec<Row> = serde_json::from_value(json.clone()).unwrap();
        assert_eq!(read, rows);
        let [pipe, ours, skipped] = [0, 1, 2].map(|row| &json[row]);
        for (found, expected) in [
            (&pipe["mechanism"], Value::from("pipe")),
            (&pipe["placement"], "same-cpu".into()),
            (&pipe["p50"], 10.into()),
            (&pipe["median"], 10.0.into()),
            (&pipe["figures"]["cpu_ns_per_msg"]["median"], 50.0.into()),
            // A percentile with enough samples in each round.
            (&pipe["figures"]["p99"]["median"], 10.0.into()),
            (&pipe["figures"]["p999"], Value::Null),
            (&ours["ratio"]["median"], 0.5.into()),
            (&ours["axes"]["receivers"], 16.into()),
            (&skipped["skipped"], "spins".into()),
        ] {
            assert_eq!(*found, expected);
        }
        for absent in ["ratio", "probe_class", "axes", "skipped", "failed"] {
            assert!(pipe.get(absent).is_none(), "{absent}");
        }
    }

    #[test]
    fn a_verdict_needs_three_common_rounds_if_they_were_measured() {
        for (common, rounds, dropped_rounds, expected) in [
            (3, 5, None, Some(Change::Faster)),
            (2, 5, None, None),
            (2, 2, Some(3), None),
            (2, 2, None, Some(Change::Faster)),
        ] {
            let values = |count: usize| Values::of((0..count).map(|round| (round, 0.5)));
            let row = Row {
                unit: Some(Unit::Nanoseconds),
                value: values(rounds),
                dropped_rounds,
                ratio: Some(Ratio {
                    to: "pipe".into(),
                    across_waiting: false,
                    values: values(common).unwrap(),
                }),
                ..Row::default()
            };
            assert_eq!(row.change(), expected);
        }
    }
}
