// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results as rows for machines and as a table for people.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

use super::host::Host;
use super::pinning::Placement;
use super::rounds::{Among, Headline, Measurement, Outcome, Series, Skip};
use super::samples::{Spread, Summary, summarize};
use super::table::{Align, Table};
use super::units;
use crate::mechanisms::Waiting;

#[derive(Serialize)]
pub struct Results {
    pub host: Host,
    pub rows: Vec<Row>,
}

/// One contender under one set of conditions. What does not apply is left out.
#[derive(Default, Serialize)]
pub struct Row {
    suite: &'static str,
    mechanism: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    receivers: Option<usize>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    among: Option<Among>,
    #[serde(skip_serializing_if = "Option::is_none")]
    processes: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    placement: Option<Placement>,
    #[serde(skip_serializing_if = "Option::is_none")]
    probe_class: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting: Option<Waiting>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unit: Option<&'static str>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    distribution: Option<Distribution>,
    #[serde(skip_serializing_if = "Option::is_none")]
    msgs_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_ns_per_msg: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rounds: Option<usize>,
    /// Of the quoted figure over the rounds: the smallest and the largest.
    #[serde(skip_serializing_if = "Option::is_none")]
    spread: Option<[f64; 2]>,
    /// To the first contender of the same cell, taken within each round.
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio: Option<Ratio>,
    #[serde(skip_serializing_if = "Option::is_none")]
    skipped: Option<String>,
}

#[derive(Serialize)]
struct Distribution {
    n: usize,
    min: u64,
    mean: f64,
    sd: f64,
    p50: u64,
    p99: u64,
    p999: u64,
    max: u64,
}

impl From<Summary> for Distribution {
    fn from(summary: Summary) -> Self {
        let Summary {
            n,
            min,
            mean,
            sd,
            p50,
            p99,
            p999,
            max,
        } = summary;
        Self {
            n,
            min,
            mean,
            sd,
            p50,
            p99,
            p999,
            max,
        }
    }
}

#[derive(Serialize)]
struct Ratio {
    to: String,
    /// Of the two one spins and the other sleeps.
    across_waiting: bool,
    median: f64,
    min: f64,
    max: f64,
}

impl Results {
    pub fn new(host: Host, class: Option<&'static str>, outcomes: &[Outcome]) -> Self {
        let rows = outcomes
            .iter()
            .flat_map(|outcome| rows(outcome, class))
            .collect();
        Self { host, rows }
    }

    pub fn write(&self, path: &Path) -> Result<()> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)
                .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        }
        let text = serde_json::to_string_pretty(self)?;
        fs::write(path, text + "\n").with_context(|| {
            format!(
                "cannot write the results to {}; give another place with --json",
                path.display()
            )
        })
    }
}

fn rows(outcome: &Outcome, class: Option<&'static str>) -> Vec<Row> {
    let class = class.filter(|_| outcome.placement == Placement::TwoCpus);
    let measured = outcome
        .series
        .iter()
        .map(|series| measured_row(outcome, series, class));
    let skipped = outcome.skips.iter().map(|skip| skipped_row(outcome, skip));
    measured.chain(skipped).collect()
}

fn measured_row(outcome: &Outcome, series: &Series, class: Option<&'static str>) -> Row {
    let spread = series.spread();
    let samples: Vec<u64> = series
        .measurements
        .iter()
        .flat_map(|one| one.samples.iter().copied())
        .collect();
    Row {
        suite: outcome.suite,
        mechanism: series.contender.mechanism,
        size: outcome.size,
        receivers: series.contender.among.is_none().then_some(1),
        among: series.contender.among,
        processes: Some(series.contender.processes),
        placement: Some(outcome.placement),
        probe_class: class,
        waiting: Some(series.contender.waiting),
        unit: Some(match outcome.headline {
            Headline::Latency => "ns",
            Headline::Rate => "bytes/s",
        }),
        distribution: summarize(samples).map(Distribution::from),
        msgs_per_s: per_second(series, |one| one.messages),
        bytes_per_s: per_second(series, |one| one.bytes),
        cpu_ns_per_msg: cpu_per_message(&series.measurements),
        rounds: Some(series.headlines.len()),
        spread: Some([spread.min, spread.max]),
        ratio: ratio(outcome, series),
        skipped: None,
    }
}

fn skipped_row(outcome: &Outcome, skip: &Skip) -> Row {
    Row {
        suite: outcome.suite,
        mechanism: skip.mechanism,
        size: outcome.size,
        placement: Some(outcome.placement),
        skipped: Some(skip.reason.clone()),
        ..Row::default()
    }
}

/// The median over the rounds of something counted.
fn per_second(series: &Series, count: impl Fn(&Measurement) -> u64) -> Option<f64> {
    let rate = |one: &Measurement| {
        (one.elapsed_ns > 0).then(|| count(one) as f64 * 1e9 / one.elapsed_ns as f64)
    };
    let rates: Option<Vec<f64>> = series.measurements.iter().map(rate).collect();
    Some(Spread::of(&rates?)?.median).filter(|rate| *rate > 0.0)
}

fn cpu_per_message(measurements: &[Measurement]) -> Option<f64> {
    let messages: u64 = measurements.iter().map(|one| one.messages).sum();
    let cpu: u64 = measurements.iter().map(|one| one.cpu_ns).sum();
    (messages > 0 && cpu > 0).then(|| cpu as f64 / messages as f64)
}

fn ratio(outcome: &Outcome, series: &Series) -> Option<Ratio> {
    let reference = reference_of(outcome, series)?;
    let Spread { median, min, max } = series.ratio_to(reference)?;
    Some(Ratio {
        to: reference.contender.label.clone(),
        across_waiting: !series.waits_like(reference),
        median,
        min,
        max,
    })
}

fn reference_of<'a>(outcome: &'a Outcome, series: &Series) -> Option<&'a Series> {
    outcome
        .series
        .first()
        .filter(|reference| !std::ptr::eq(*reference, series))
}

/// The whole table, and under it what was skipped.
pub fn text(host: &Host, outcomes: &[Outcome]) -> String {
    let mut table = Table::new(&[
        ("what", Align::Left),
        ("", Align::Left),
        ("median", Align::Right),
        ("rounds", Align::Right),
        ("p99 or messages", Align::Right),
        ("CPU/message", Align::Right),
        ("ratio", Align::Right),
        ("rounds", Align::Right),
        ("", Align::Left),
    ]);
    for outcome in outcomes {
        for (index, series) in outcome.series.iter().enumerate() {
            let title = if index == 0 {
                format!("{} {}", outcome.suite, outcome.title)
            } else {
                String::new()
            };
            table.row(line(outcome, series, title));
        }
    }
    format!("{}\n\n{table}{}", host.line(), skipped_lines(outcomes))
}

fn line(outcome: &Outcome, series: &Series, title: String) -> [String; 9] {
    let spread = series.spread();
    let ratio = reference_of(outcome, series).and_then(|reference| series.ratio_to(reference));
    let (median, rounds) = match outcome.headline {
        Headline::Latency => (
            units::nanoseconds(spread.median),
            units::nanosecond_range(spread.min, spread.max),
        ),
        Headline::Rate => (
            units::bytes_per_second(spread.median),
            units::rate_range(spread.min, spread.max),
        ),
    };
    [
        title,
        series.contender.label.clone(),
        median,
        rounds,
        detail(outcome, series).unwrap_or_default(),
        cpu_per_message(&series.measurements)
            .map(units::nanoseconds)
            .unwrap_or_default(),
        ratio
            .map(|ratio| format!("{:.2}", ratio.median))
            .unwrap_or_default(),
        ratio
            .map(|ratio| units::ratio_range(ratio.min, ratio.max))
            .unwrap_or_default(),
        verdict(outcome, series).unwrap_or_default(),
    ]
}

/// Of latencies how bad the bad ones are, of a stream how many messages it was.
fn detail(outcome: &Outcome, series: &Series) -> Option<String> {
    match outcome.headline {
        Headline::Rate => per_second(series, |one| one.messages).map(units::per_second),
        Headline::Latency => {
            let samples = series
                .measurements
                .iter()
                .flat_map(|one| one.samples.iter().copied())
                .collect();
            summarize(samples).map(|summary| units::nanoseconds(summary.p99 as f64))
        }
    }
}

/// Better or worse only where the rounds of the two do not overlap.
fn verdict(outcome: &Outcome, series: &Series) -> Option<String> {
    let reference = reference_of(outcome, series)?;
    series.ratio_to(reference)?;
    let (ours, theirs) = (series.spread(), reference.spread());
    let smaller = ours.median < theirs.median;
    let verdict = if ours.overlaps(&theirs) {
        "within spread"
    } else if smaller == (outcome.headline == Headline::Latency) {
        "faster"
    } else {
        "slower"
    };
    let label = if series.waits_like(reference) {
        ""
    } else {
        ", spin against sleep"
    };
    Some(format!("{verdict}{label}"))
}

/// One line for each reason, however many cells it concerns.
fn skipped_lines(outcomes: &[Outcome]) -> String {
    let mut reasons: Vec<(String, usize)> = Vec::new();
    for skip in outcomes.iter().flat_map(|outcome| &outcome.skips) {
        let text = format!("skipped: {}: {}", skip.mechanism, skip.reason);
        match reasons.iter_mut().find(|(known, _)| *known == text) {
            Some((_, times)) => *times += 1,
            None => reasons.push((text, 1)),
        }
    }
    reasons
        .iter()
        .map(|(text, times)| format!("{text} ({times} ×)\n"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::rounds::{Contender, Job};

    struct Idle;

    impl Job for Idle {
        fn check(&self) -> Result<()> {
            Ok(())
        }

        fn measure(&self) -> Result<Measurement> {
            Ok(Measurement::default())
        }
    }

    fn series(mechanism: &'static str, headlines: &[f64]) -> Series {
        let measurement = |&value: &f64| Measurement {
            samples: vec![value as u64],
            messages: 10,
            bytes: 10,
            elapsed_ns: 1000,
            cpu_ns: 500,
        };
        let contender = Contender {
            mechanism,
            label: mechanism.into(),
            waiting: Waiting::Sleep,
            processes: 2,
            among: None,
            job: Box::new(Idle),
        };
        Series {
            contender,
            measurements: headlines.iter().map(measurement).collect(),
            headlines: headlines.to_vec(),
        }
    }

    fn outcome(headline: Headline, theirs: &[f64], ours: &[f64]) -> Outcome {
        Outcome {
            suite: "rtt",
            title: "1 B same-cpu".into(),
            size: Some(1),
            placement: Placement::SameCpu,
            headline,
            series: vec![series("pipe", theirs), series("sluice-pipe", ours)],
            skips: vec![Skip {
                mechanism: "cacheline",
                reason: "spins".into(),
            }],
        }
    }

    #[test]
    fn better_means_beyond_both_spreads() {
        let judge = |headline, theirs: &[f64], ours: &[f64]| {
            let outcome = outcome(headline, theirs, ours);
            verdict(&outcome, &outcome.series[1]).unwrap()
        };
        assert_eq!(
            judge(Headline::Latency, &[10.0, 12.0], &[5.0, 9.0]),
            "faster"
        );
        assert_eq!(judge(Headline::Rate, &[10.0, 12.0], &[5.0, 9.0]), "slower");
        assert_eq!(
            judge(Headline::Rate, &[10.0, 12.0], &[11.0, 20.0]),
            "within spread"
        );
    }

    #[test]
    fn a_spinner_against_a_sleeper_is_labelled_so() {
        let mut outcome = outcome(Headline::Latency, &[10.0], &[5.0]);
        outcome.series[1].contender.waiting = Waiting::Spin;
        assert_eq!(
            verdict(&outcome, &outcome.series[1]).unwrap(),
            "faster, spin against sleep"
        );
        let rows = serde_json::to_value(rows(&outcome, None)).unwrap();
        assert_eq!(rows[1]["ratio"]["across_waiting"], true);
    }

    #[test]
    fn a_reason_to_skip_is_told_once() {
        let outcomes = [0, 1].map(|_| outcome(Headline::Rate, &[1.0], &[1.0]));
        assert_eq!(
            skipped_lines(&outcomes),
            "skipped: cacheline: spins (2 ×)\n"
        );
    }

    #[test]
    fn rows_leave_out_what_does_not_apply() {
        let rows = rows(&outcome(Headline::Latency, &[10.0], &[5.0]), Some("near"));
        let json = serde_json::to_value(&rows).unwrap();
        assert_eq!(json[0]["mechanism"], "pipe");
        assert_eq!(json[0]["placement"], "same-cpu");
        assert_eq!(json[0]["p50"], 10);
        assert_eq!(json[0]["cpu_ns_per_msg"], 50.0);
        assert!(
            json[0].get("ratio").is_none(),
            "the reference is not compared with itself"
        );
        assert!(
            json[0].get("probe_class").is_none(),
            "one processor has no distance to itself"
        );
        assert_eq!(json[1]["ratio"]["median"], 0.5);
        assert_eq!(json[2]["skipped"], "spins");
        assert!(json[2].get("p50").is_none());
    }
}
