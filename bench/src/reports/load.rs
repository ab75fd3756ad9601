// SPDX-License-Identifier: MIT OR Apache-2.0
//! Latency from the due time of a message, by the share of the saturation at which messages become due.

use sluice_testkit::spread::Spread;
use sluice_testkit::table::{Align, Table};
use sluice_testkit::units;

use super::criteria::{self, Criterion, Limit};
use crate::harness::rows::{Percentiles, Row};

pub const SUITE: &str = "load";
/// The load of the criterion.
pub const HALF: u32 = 50;
/// It carries no messages, but is a lower bound.
const BOUND: &str = "cacheline";

/// None if the suite was not measured.
pub fn text(rows: &[Row]) -> Option<String> {
    let rows = super::measured_rows(SUITE, rows)?;
    Some(format!(
        "Latency under load, from the time at which a message is due; each percentile from ten messages beyond it in each round on\n\n{}\n\
         Criteria\n\n{}",
        latencies(&rows),
        criteria::table("p99 ÷ p99", "its rounds", list(&rows)),
    ))
}

fn latencies(rows: &[&Row]) -> Table {
    let mut table = Table::new(&[
        ("load", Align::Left),
        ("due", Align::Right),
        ("mechanism", Align::Left),
        ("p50", Align::Right),
        ("p90", Align::Right),
        ("p99", Align::Right),
        ("p99.9", Align::Right),
        ("p99.99", Align::Right),
        ("receiver's CPU/message", Align::Right),
    ]);
    for row in rows {
        table.row(line(row));
    }
    table
}

fn line(row: &Row) -> [String; 9] {
    let time = |ns: u64| units::nanoseconds(ns as f64);
    let all = row.distribution.as_ref();
    let shown = |value: Option<u64>| value.map_or_else(String::new, time);
    [
        row.title.clone(),
        row.load_rate.map_or_else(String::new, units::per_second),
        row.label.clone(),
        shown(all.map(|all| all.p50)),
        shown(all.and_then(|all| all.p90)),
        shown(all.and_then(|all| all.p99)),
        shown(all.and_then(|all| all.p999)),
        shown(all.and_then(|all| all.p9999)),
        row.cpu_ns_per_msg
            .map_or_else(String::new, units::nanoseconds),
    ]
}

fn list(rows: &[&Row]) -> Vec<Criterion> {
    let half = rows.iter().filter(|row| row.load_percent == Some(HALF));
    let is_ours = |row: &&&Row| row.is_sluice();
    let (ours, rivals): (Vec<&Row>, Vec<&Row>) = half.partition(is_ours);
    ours.into_iter()
        .map(|row| {
            let best = best_of(row, &rivals);
            let to = best.map_or("the best rival", |rival| rival.label.as_str());
            Criterion {
                text: format!("{}: {} ÷ {to}", row.title, row.label),
                ratio: best.and_then(|rival| ratio(row, rival)),
                limit: match row.waiting == best.and_then(|rival| rival.waiting) {
                    true => Limit::NotAbove,
                    false => Limit::None,
                },
            }
        })
        .collect()
}

/// The rival with the smallest p99 under the same conditions, if there is one among those that wait in the same way.
fn best_of<'a>(row: &Row, rivals: &[&'a Row]) -> Option<&'a Row> {
    let p99 = |row: &Row| row.distribution.and_then(|all| all.p99);
    let same = |rival: &&Row| {
        rival.title == row.title && rival.waiting == row.waiting && rival.mechanism != BOUND
    };
    let rivals = rivals.iter().copied().filter(same);
    let with_p99 = rivals.filter_map(|rival| Some((p99(rival)?, rival)));
    let best = with_p99.min_by_key(|(p99, _)| *p99);
    best.map(|(_, rival)| rival)
}

/// Of the 99th percentiles within each round.
fn ratio(row: &Row, rival: &Row) -> Option<Spread> {
    if row.probe_class != rival.probe_class {
        return None;
    }
    let theirs = rival.percentiles.as_deref()?;
    let of_round = |ours: &Percentiles| {
        let other = theirs.iter().find(|other| other.round == ours.round)?;
        Some(ours.p99 as f64 / other.p99 as f64)
    };
    let ours = row.percentiles.as_deref()?.iter();
    Spread::of(&ours.filter_map(of_round).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::samples::tests::summary;
    use crate::harness::waiting::Waiting;

    fn row(mechanism: &str, waiting: Waiting, percent: u32, p99: [u64; 2]) -> Row {
        let percentiles = p99.into_iter().enumerate();
        let percentiles = percentiles.map(|(round, p99)| Percentiles {
            round,
            p50: p99 / 2,
            p99,
            p999: None,
        });
        Row {
            suite: SUITE.into(),
            mechanism: mechanism.into(),
            label: mechanism.into(),
            title: format!("64 B {percent} %"),
            load_percent: Some(percent),
            waiting: Some(waiting),
            median: Some(1.0),
            distribution: summary((0..1000).map(|number| p99[number % 2])),
            percentiles: Some(percentiles.collect()),
            ..Row::default()
        }
    }

    #[test]
    fn the_best_rival_that_waits_alike_is_compared_at_half_load() {
        let rows = [
            row("sluice-ring", Waiting::Sleep, HALF, [900, 800]),
            row("slow", Waiting::Sleep, HALF, [5000, 5000]),
            row("quick", Waiting::Sleep, HALF, [1000, 1000]),
            row("spinning", Waiting::Spin, HALF, [100, 100]),
            row("cacheline", Waiting::Sleep, HALF, [50, 50]),
            row("sluice-ring", Waiting::Sleep, 90, [9000, 9000]),
        ];
        let text = text(&rows).unwrap();
        let lines: Vec<_> = text
            .lines()
            .filter(|line| line.contains("÷ quick"))
            .collect();
        assert_eq!(lines.len(), 1, "{text}");
        for part in ["64 B 50 %: sluice-ring ÷ quick", "0.85", "≤ 1", " met"] {
            assert!(lines[0].contains(part), "{part} in {}", lines[0]);
        }
    }

    #[test]
    fn without_a_rival_nothing_is_claimed() {
        let rows = [row("sluice-ring", Waiting::Sleep, HALF, [900, 800])];
        let text = text(&rows).unwrap();
        assert!(text.contains("not measured"), "{text}");
    }
}
