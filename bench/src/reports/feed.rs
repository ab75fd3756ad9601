// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of report 3: percentiles of the latency of packets from the kernel, in cycles of the time stamp counter, and
//! their ratios within the rounds of this run. The figures of the report are those of its authors' machine.

use std::fmt::Write as _;

use sluice_testkit::spread::Spread;
use sluice_testkit::table::{Align, Table};
use sluice_testkit::units;

use super::claims::Verdict;
use crate::harness::rows::{Percentiles, Row};

pub const SUITE: &str = "feed";

#[derive(Clone, Copy)]
enum Percentile {
    P50,
    P99,
    P999,
}

impl Percentile {
    const ALL: [Self; 3] = [Self::P50, Self::P99, Self::P999];

    fn name(self) -> &'static str {
        match self {
            Self::P50 => "P50",
            Self::P99 => "P99",
            Self::P999 => "P99.9",
        }
    }

    /// Of all samples, in nanoseconds.
    fn of_all(self, row: &Row) -> Option<u64> {
        let all = row.distribution?;
        match self {
            Self::P50 => Some(all.p50),
            Self::P99 => all.p99,
            Self::P999 => all.p999,
        }
    }

    fn of_round(self, round: &Percentiles) -> Option<u64> {
        match self {
            Self::P50 => Some(round.p50),
            Self::P99 => Some(round.p99),
            Self::P999 => round.p999,
        }
    }

    /// The figure of the report in cycles.
    fn reported(self, mechanism: &str) -> Option<f64> {
        let (_, figures) = REPORTED.iter().find(|(name, _)| *name == mechanism)?;
        Some(figures[self as usize])
    }
}

/// P50, P99 and P99.9 of 1,000 samples, in cycles of the machine of the report: its blocking read, its mapped memory
/// ("v2.0") and its ring ("v3.1").
const REPORTED: [(&str, [f64; 3]); 3] = [
    ("hft-read", [570_492.0, 965_693.0, 1_383_176.0]),
    ("hft-slot", [16_882.0, 183_610.0, 366_469.0]),
    ("hft-ring", [8_190.0, 11_634.0, 63_280.0]),
];

/// The slower one of two, by the report or by expectation, and the faster one.
const RATIOS: [[&str; 2]; 8] = [
    ["hft-read", "hft-ring"],
    ["hft-slot", "hft-ring"],
    ["sluice-feed-read", "sluice-feed"],
    ["hft-read", "sluice-feed-read"],
    ["hft-ring-pages", "hft-ring"],
    ["hft-ring", "sluice-feed"],
    ["hft-slot-unaligned", "hft-slot"],
    ["hft-slot-unaligned", "sluice-feed"],
];

/// None if the suite was not measured.
pub fn text(rows: &[Row]) -> Option<String> {
    let rows: Vec<&Row> = rows
        .iter()
        .filter(|row| row.suite == SUITE && row.percentiles.is_some())
        .collect();
    if rows.is_empty() {
        return None;
    }
    let mut text = format!(
        "Latency of packets in cycles of the time stamp counter, compared with report 3\n\n{}\n\
         Ratios of percentiles within rounds\n\n{}",
        figures(&rows),
        ratios(&rows)
    );
    if let Some(samples) = samples_per_round(&rows).filter(|&samples| samples < 10_000) {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "P99.9 needs 10,000 samples in a round, and these rounds have {samples}: measure with --full"
        );
    }
    Some(text)
}

fn samples_per_round(rows: &[&Row]) -> Option<usize> {
    let samples = |row: &&Row| Some(row.distribution?.n / row.rounds?.max(1));
    rows.iter().filter_map(samples).min()
}

fn figures(rows: &[&Row]) -> Table {
    let mut columns = vec![
        ("mechanism", Align::Left),
        ("samples", Align::Right),
        ("lost", Align::Right),
    ];
    columns.extend(Percentile::ALL.map(|one| (one.name(), Align::Right)));
    columns.extend(["reported P50", "P99", "P99.9"].map(|name| (name, Align::Right)));
    let mut table = Table::new(&columns);
    for row in rows {
        let here = Percentile::ALL.map(|one| cycles_and_time(one, row));
        let reported = Percentile::ALL.map(|one| {
            let figure = one.reported(&row.mechanism);
            figure.map_or_else(String::new, |cycles| format!("{cycles:.0}"))
        });
        let all = row.distribution.map_or(0, |all| all.n);
        let lost = row.lost.map_or_else(String::new, |lost| lost.to_string());
        let first = [row.mechanism.clone(), all.to_string(), lost];
        table.row([&first[..], &here, &reported].concat());
    }
    table
}

fn cycles_and_time(percentile: Percentile, row: &Row) -> String {
    let (Some(ns), Some(frequency)) = (percentile.of_all(row), row.cycles_per_ns) else {
        return String::new();
    };
    let ns = ns as f64;
    format!("{:.0} ({})", ns * frequency, units::nanoseconds(ns))
}

fn ratios(rows: &[&Row]) -> Table {
    let mut table = Table::new(&[
        ("ratio", Align::Left),
        ("percentile", Align::Left),
        ("reported", Align::Right),
        ("here", Align::Right),
        ("its rounds", Align::Right),
        ("the first is slower", Align::Left),
    ]);
    for [slower, faster] in RATIOS {
        for percentile in Percentile::ALL {
            table.row(ratio_line(percentile, slower, faster, rows));
        }
    }
    table
}

fn ratio_line(percentile: Percentile, slower: &str, faster: &str, rows: &[&Row]) -> [String; 6] {
    let reported = percentile
        .reported(slower)
        .zip(percentile.reported(faster))
        .map(|(slower, faster)| units::ratio(slower / faster));
    let here = ratio(percentile, slower, faster, rows);
    let text = |of: fn(Spread) -> String| here.map_or_else(|| "–".into(), of);
    [
        format!("{slower} ÷ {faster}"),
        percentile.name().into(),
        reported.unwrap_or_default(),
        text(|spread| units::ratio(spread.median)),
        text(|spread| units::ratio_range(spread.min, spread.max)),
        verdict(here).name().into(),
    ]
}

/// The ratio within each round; None without a round of both.
fn ratio(percentile: Percentile, slower: &str, faster: &str, rows: &[&Row]) -> Option<Spread> {
    let row = |name| rows.iter().find(|row| row.mechanism == name);
    let (slower, faster) = (row(slower)?, row(faster)?);
    if slower.probe_class != faster.probe_class {
        return None;
    }
    let faster = faster.percentiles.as_deref()?;
    let of_round = |round: &Percentiles| {
        let other = faster.iter().find(|other| other.round == round.round)?;
        let value = |one| percentile.of_round(one).map(|ns| ns as f64);
        Some(value(round)? / value(other)?)
    };
    let rounds = slower.percentiles.as_deref()?.iter();
    let ratios: Vec<f64> = rounds.filter_map(of_round).collect();
    Spread::of(&ratios)
}

/// Whether the first of the two is slower in every round.
fn verdict(ratio: Option<Spread>) -> Verdict {
    match ratio {
        None => Verdict::NotMeasured,
        Some(ratio) if ratio.min > 1.0 => Verdict::Confirmed,
        Some(ratio) if ratio.max < 1.0 => Verdict::Refuted,
        Some(_) => Verdict::WithinSpread,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::samples::tests::summary;

    /// A row whose rounds have these percentiles.
    fn row(mechanism: &str, rounds: &[[u64; 3]]) -> Row {
        let samples = rounds.concat();
        let percentiles = rounds.iter().enumerate();
        let percentiles = percentiles.map(|(round, &[p50, p99, p999])| Percentiles {
            round,
            p50,
            p99,
            p999: Some(p999),
        });
        Row {
            suite: SUITE.into(),
            mechanism: mechanism.into(),
            rounds: Some(rounds.len()),
            lost: Some(3),
            cycles_per_ns: Some(2.5),
            distribution: summary(samples),
            percentiles: Some(percentiles.collect()),
            ..Row::default()
        }
    }

    fn rows() -> [Row; 2] {
        [
            row("hft-read", &[[1000, 2000, 9000], [1000, 3000, 9000]]),
            row("hft-ring", &[[100, 1000, 9000], [200, 4000, 9000]]),
        ]
    }

    fn line<'a>(text: &'a str, parts: [&str; 2]) -> &'a str {
        let has = |line: &&str| parts.iter().all(|part| line.contains(part));
        text.lines().find(has).unwrap()
    }

    #[test]
    fn ratios_are_taken_within_rounds_and_compared_with_the_report() {
        let text = text(&rows()).unwrap();
        let p50 = line(&text, ["hft-read ÷ hft-ring", "P50"]);
        for part in [" 70 ", " 7.5 ", "5.0 … 10", "confirmed"] {
            assert!(p50.contains(part), "{part} in {p50}");
        }
        let p99 = line(&text, ["hft-read ÷ hft-ring", "P99 "]);
        assert!(p99.contains("within the spread"), "{p99}");
        let absent = line(&text, ["hft-ring ÷ sluice-feed", "P50"]);
        assert!(absent.contains("not measured"), "{absent}");
    }

    #[test]
    fn cycles_follow_from_the_frequency_and_the_report_is_quoted() {
        let text = text(&rows()).unwrap();
        let ring = line(&text, ["hft-ring ", "8190"]);
        assert!(ring.contains("2500 (1.00 µs)"), "{ring}");
        assert!(text.contains("these rounds have 3"), "{text}");
    }
}
