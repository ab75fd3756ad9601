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
use sluice_testkit::units;

use super::class::Class;
use super::figures::{
    Axes, BYTES_PER_SECOND, CPU_PER_MESSAGE, MESSAGES_PER_SECOND, P99, P999, Unit, Value, Values,
};
use super::file;
use super::pinning::Placement;
use super::rounds::{Outcome, Round, Series, Skipped};
use super::samples::{Change, Samples, Summary, distribution_function, summarize};
use super::waiting::Waiting;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    pub host: Host,
    /// What reading the clock costs, which each sample contains once.
    pub clock_ns: u64,
    /// The versions of what is compared, by name.
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
    /// Message size in bytes.
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
    pub other_class: Option<bool>,
    /// Rounds during which the distance of the processors kept changing.
    pub noisy_rounds: Option<usize>,
    #[serde(flatten)]
    pub distribution: Option<Summary>,
    /// Steps of the distribution function of all samples: nanoseconds, and the share of samples up to that value.
    pub cdf: Option<Vec<(u64, f64)>>,
    /// The ratios of the other rows of these conditions refer to this one.
    pub is_reference: Option<bool>,
    pub ratio: Option<Ratio>,
    /// Of the adapter of a third-party library.
    pub calibration: Option<Calibration>,
    /// Why there is no result.
    pub skipped: Option<String>,
    /// The result is absent because of a failure.
    pub failed: Option<bool>,
}

/// Relative to the reference of the same conditions, within the rounds in which both were measured at the same distance of the
/// processors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    pub to: String,
    /// One of the two spins, the other sleeps.
    pub across_waiting: bool,
    #[serde(flatten)]
    pub values: Values,
}

/// The speed of an adapter divided by that of its library's own program, taken within each round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// The label of that program.
    pub to: String,
    pub median: f64,
    pub spread: [f64; 2],
    /// Why the adapter is slower.
    pub reason: Option<String>,
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
        serde_json::from_str(&text).with_context(|| {
            format!(
                "{} is not a results file of this version of sluice-bench",
                path.display()
            )
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

    /// The number of rounds that were kept.
    pub fn rounds(&self) -> usize {
        self.value.as_ref().map_or(0, |value| value.values.len())
    }

    pub fn figure(&self, name: &str) -> Option<&Values> {
        self.figures.get(name)
    }

    /// The median of a figure.
    pub fn median_of(&self, figure: &str) -> Option<f64> {
        Some(self.figure(figure)?.median)
    }

    pub fn number(&self, axis: &str) -> Option<f64> {
        match self.axes.get(axis)? {
            Value::Number(number) => Some(*number),
            Value::Text(_) => None,
        }
    }

    pub fn is_noisy(&self) -> bool {
        self.noisy_rounds.is_some()
    }

    pub fn less_is_better(&self) -> bool {
        self.unit.is_some_and(Unit::less_is_better)
    }

    /// The ratio of the compared values within each round; None without a round of both, and for different classes.
    pub fn ratio_within_rounds(&self, to: &Self) -> Option<Values> {
        let ours = self
            .value
            .as_ref()
            .filter(|_| self.probe_class == to.probe_class)?;
        ours.ratio(to.value.as_ref()?)
    }

    pub fn median_text(&self) -> Option<String> {
        Some(self.unit?.text(self.median()?))
    }

    pub fn range_text(&self) -> Option<String> {
        Some(self.unit?.range(self.value.as_ref()?.spread))
    }

    /// The ratio, and its rounds.
    pub fn ratio_texts(&self) -> Option<[String; 2]> {
        let Values { median, spread, .. } = &self.ratio.as_ref()?.values;
        Some([
            units::ratio(*median),
            units::ratio_range(spread[0], spread[1]),
        ])
    }

    /// The row that the ratio refers to.
    pub fn reference<'a>(&self, rows: &'a [Self]) -> Option<&'a Self> {
        let to = &self.ratio.as_ref()?.to;
        let wanted = (&self.suite, &self.title, to);
        rows.iter()
            .find(|row| (&row.suite, &row.title, &row.label) == wanted)
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
        let [min, max] = self.ratio.as_ref()?.values.spread;
        let is_enough = self.few_common_rounds().is_none();
        is_enough.then(|| Change::of_ratios(min, max, self.less_is_better()))
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
    let samples: Vec<&Samples> = series.rounds.iter().map(|round| &round.samples).collect();
    let noisy = series.noisy_rounds();
    Row {
        suite: outcome.suite.into(),
        mechanism: series.subject.mechanism.into(),
        label: series.subject.label.clone(),
        title: outcome.title.clone(),
        size: outcome.size,
        placement: Some(outcome.placement),
        processes: Some(series.subject.processes),
        waiting: Some(series.subject.waiting),
        axes: series.subject.axes.clone(),
        unit: Some(outcome.metric.unit()),
        value: series.values(),
        figures: figures(&series.rounds),
        dropped_rounds: Some(series.dropped).filter(|&rounds| rounds > 0),
        probe_class: series.class(),
        other_class: Some(series.class() != outcome.class).filter(|&other| other),
        noisy_rounds: Some(noisy).filter(|&rounds| rounds > 0),
        distribution: summarize(&samples),
        cdf: distribution_function(&samples),
        is_reference: Some(outcome.is_reference(series)).filter(|&it_is| it_is),
        ratio: ratio(outcome, series),
        ..Row::default()
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

/// The figures of the suite, and those that follow from what each suite measures, if all rounds have them.
fn figures(rounds: &[Round]) -> BTreeMap<String, Values> {
    let mut figures: BTreeMap<&str, Vec<(usize, f64)>> = BTreeMap::new();
    for round in rounds {
        for (name, value) in round
            .measurement
            .figures
            .iter()
            .copied()
            .chain(derived(round))
        {
            figures.entry(name).or_default().push((round.number, value));
        }
    }
    let figures = figures
        .into_iter()
        .filter(|(_, values)| values.len() == rounds.len());
    figures
        .filter_map(|(name, values)| Some((name.into(), Values::of(values.into_iter())?)))
        .collect()
}

fn derived(round: &Round) -> impl Iterator<Item = (&'static str, f64)> {
    let one = &round.measurement;
    let quotient = |of: u64, by: u64| (of > 0 && by > 0).then(|| of as f64 / by as f64);
    let per_second = |count: u64| Some(quotient(count, one.elapsed_ns)? * 1e9);
    let summary = summarize(&[&round.samples]);
    let percentile = |of: fn(&Summary) -> Option<u64>| Some(of(summary.as_ref()?)? as f64);
    [
        (CPU_PER_MESSAGE, quotient(one.cpu_ns, one.messages)),
        (MESSAGES_PER_SECOND, per_second(one.messages)),
        (BYTES_PER_SECOND, per_second(one.bytes)),
        (P99, percentile(|all| all.p99)),
        (P999, percentile(|all| all.p999)),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name, value?)))
}

fn ratio(outcome: &Outcome, series: &Series) -> Option<Ratio> {
    let reference = outcome.reference_of(series)?;
    Some(Ratio {
        to: reference.subject.label.clone(),
        across_waiting: !series.waits_like(reference),
        values: series.ratios_to(reference)?,
    })
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::harness::figures::{IMBALANCE, LOST};
    use crate::harness::rounds::Metric;
    use crate::harness::rounds::tests::{outcome, series};

    #[test]
    fn fields_that_do_not_apply_are_absent() {
        let rows = rows(&outcome(Metric::Latency, &[10.0], &[5.0]));
        let json = serde_json::to_value(&rows).unwrap();
        assert_eq!(json[0]["mechanism"], "pipe");
        assert_eq!(json[0]["placement"], "same-cpu");
        assert_eq!(
            (&json[0]["p50"], &json[0]["unit"]),
            (&10.into(), &"ns".into())
        );
        assert_eq!(json[0]["median"], 10.0);
        assert_eq!(json[0]["figures"]["cpu_ns_per_msg"]["median"], 50.0);
        for absent in [
            "ratio",
            "probe_class",
            "noisy_rounds",
            "axes",
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
        let mut outcome = outcome(Metric::Latency, &[10.0, 11.0], &[5.0, 6.0]);
        let rounds = outcome.series.iter_mut().flat_map(|one| &mut one.rounds);
        rounds.for_each(|round| round.class = Some(Class::SharedCache));
        outcome.series[0]
            .subject
            .axes
            .insert("receivers".into(), 16.into());
        let results = Results::new(Host::probe(), &[outcome]);
        assert_eq!(results.rows[0].probe_class, Some(Class::SharedCache));
        assert_eq!(results.rows[0].number("receivers"), Some(16.0));
        let path = std::env::temp_dir().join(format!("sluice-rows-{}.json", std::process::id()));
        results.write(&path).unwrap();
        let read = Results::read(&path);
        fs::remove_file(&path).unwrap();
        assert_eq!(read.unwrap().rows, results.rows);
    }

    #[test]
    fn rounds_of_different_classes_have_no_ratio() {
        let mut outcome = outcome(Metric::Latency, &[10.0], &[5.0]);
        outcome.series[1] = series("sluice-pipe", Waiting::Spin, &[5.0]);
        assert!(ratio(&outcome, &outcome.series[1]).unwrap().across_waiting);
        outcome.series[1].rounds[0].class = Some(Class::Remote);
        assert_eq!(ratio(&outcome, &outcome.series[1]), None);
    }

    #[test]
    fn figures_are_those_of_each_round() {
        let mut outcome = outcome(Metric::Latency, &[10.0, 20.0], &[5.0]);
        for (round, (lost, imbalance)) in outcome.series[0]
            .rounds
            .iter_mut()
            .zip([(2.0, 1.5), (1.0, 9.0)])
        {
            round.measurement.figures = vec![(LOST, lost), (IMBALANCE, imbalance)];
            round.samples = std::iter::repeat_n(round.value as u64, 1000).collect();
        }
        let row = &rows(&outcome)[0];
        assert_eq!(row.figure(LOST).map(Values::sum), Some(3.0));
        assert_eq!(row.figure(P99).unwrap().values, [(0, 10.0), (1, 20.0)]);
        assert_eq!(
            (row.median_of(IMBALANCE), row.figure(P999)),
            (Some(5.25), None)
        );
    }

    #[test]
    fn a_verdict_needs_three_common_rounds_if_they_were_measured() {
        let values = |count: usize| Values::of((0..count).map(|round| (round, 0.5)));
        let change = |common, rounds, dropped_rounds| {
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
            row.change()
        };
        assert_eq!(change(3, 5, None), Some(Change::Faster));
        assert_eq!(change(2, 5, None), None);
        assert_eq!(change(2, 2, Some(3)), None);
        assert_eq!(change(2, 2, None), Some(Change::Faster));
    }
}
