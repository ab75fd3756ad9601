// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results as a text table.

use sluice_testkit::host::Host;
use sluice_testkit::table::{Align, Table};
use sluice_testkit::units;

use super::figures::{
    BYTES_PER_SECOND, CPU_PER_MESSAGE, IMBALANCE, LOST, MESSAGES_PER_SECOND, SWITCHES_PER_MESSAGE,
    Values,
};
use super::rows::{Calibration, Results, Row};

/// The whole table, followed by the skipped mechanisms.
pub fn text(results: &Results) -> String {
    let mut table = Table::new(&[
        ("conditions", Align::Left),
        ("mechanism", Align::Left),
        ("median", Align::Right),
        ("its rounds", Align::Right),
        ("p90", Align::Right),
        ("p99 or messages", Align::Right),
        ("CPU/message", Align::Right),
        ("ratio", Align::Right),
        ("its rounds", Align::Right),
        ("kept", Align::Right),
        ("class", Align::Left),
        ("remarks", Align::Left),
    ]);
    let mut last = String::new();
    for row in results.rows.iter().filter(|row| row.is_measured()) {
        let title = format!("{} {}", row.suite, row.title);
        let cells = line(row, &results.rows);
        let shown = if title == last { "" } else { &title };
        table.row([shown.to_string()].into_iter().chain(cells));
        last = title;
    }
    format!(
        "{}{}\nreading the clock, which each sample contains: {}\n\n{table}{}",
        results.host.line(),
        wakeup_line(&results.host),
        units::nanoseconds(results.clock_ns as f64),
        skipped_lines(&results.rows)
    )
}

fn wakeup_line(host: &Host) -> String {
    host.waking_ns.map_or_else(String::new, |cost| {
        format!(
            "\nwake-up of a process that sleeps on another processor, p50: {}",
            units::nanoseconds(cost as f64)
        )
    })
}

fn line(row: &Row, rows: &[Row]) -> [String; 11] {
    let [p90, detail] = detail(row);
    let [ratio, ratios] = row.ratio_texts().unwrap_or_default();
    [
        row.label.clone(),
        row.median_text().unwrap_or_default(),
        row.range_text().unwrap_or_default(),
        p90,
        detail,
        row.median_of(CPU_PER_MESSAGE)
            .map_or_else(String::new, units::nanoseconds),
        ratio,
        ratios,
        kept(row),
        row.probe_class
            .map_or_else(String::new, |class| class.name().into()),
        remark(row, rows),
    ]
}

/// The rounds that were kept, of those that were measured.
fn kept(row: &Row) -> String {
    let kept = row.rounds();
    format!("{kept}/{}", kept + row.dropped_rounds.unwrap_or_default())
}

/// High percentiles of a latency, or the message rate of a stream.
fn detail(row: &Row) -> [String; 2] {
    match (row.less_is_better(), row.distribution) {
        (true, Some(all)) => [all.p90, all.p99]
            .map(|value| value.map_or_else(String::new, |ns| units::nanoseconds(ns as f64))),
        (true, None) => Default::default(),
        (false, _) => {
            // A rate of operations is the median itself.
            let messages = row.median_of(MESSAGES_PER_SECOND);
            let messages = messages.filter(|_| row.figure(BYTES_PER_SECOND).is_some());
            let messages = messages.map(units::per_second);
            [String::new(), messages.unwrap_or_default()]
        }
    }
}

/// What it is compared with, or how it compares, the cost and balance of several writers, and lost packets.
fn remark(row: &Row, rows: &[Row]) -> String {
    let switches = row.median_of(SWITCHES_PER_MESSAGE);
    let imbalance = row.median_of(IMBALANCE);
    let lost = row.figure(LOST).map(Values::sum);
    let parts = [
        verdict(row, rows),
        switches.map(|count| format!("{} context switches/message", units::figures(count))),
        imbalance.map(|times| format!("busiest writer {} ×", units::figures(times))),
        lost.filter(|&packets| packets > 0.0)
            .map(|packets| format!("{packets} lost")),
        row.calibration.as_ref().map(calibration),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn calibration(calibration: &Calibration) -> String {
    let speed = format!(
        "{} of its own program's speed",
        units::ratio(calibration.median)
    );
    match &calibration.reason {
        Some(reason) => format!("{speed}: {reason}"),
        None => speed,
    }
}

/// Faster or slower than the reference, and what the comparison must be read with.
fn verdict(row: &Row, rows: &[Row]) -> Option<String> {
    if row.is_reference == Some(true) {
        return Some("reference".into());
    }
    if row.other_class == Some(true) {
        return Some("not compared: no round of the class of the others".into());
    }
    if let Some(common) = row.few_common_rounds() {
        let rounds = units::counted(common, "common round");
        return Some(format!("not compared: {rounds} of the same class"));
    }
    let change = row.change_name(row.change()?);
    let across = match row.ratio.as_ref()?.across_waiting {
        true => ", spin against sleep",
        false => "",
    };
    let noisy = match row.is_noisy() || row.reference(rows)?.is_noisy() {
        true => ", noisy",
        false => "",
    };
    Some(format!("{change}{across}{noisy}"))
}

/// One line for each reason, with the number of cases.
fn skipped_lines(rows: &[Row]) -> String {
    let mut reasons: Vec<(String, usize)> = Vec::new();
    for row in rows {
        let Some(reason) = &row.skipped else {
            continue;
        };
        let status = match row.failed {
            Some(true) => "FAILED",
            _ => "skipped",
        };
        let text = format!("{status}: {}: {reason}", row.label);
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
    use crate::harness::class::Class;
    use crate::harness::rounds::tests::{outcome, series};
    use crate::harness::rounds::{Metric, Outcome};
    use crate::harness::rows::rows;
    use crate::harness::waiting::Waiting;

    fn verdict_text(row: &Row, rows: &[Row]) -> String {
        verdict(row, rows).unwrap()
    }

    /// The verdict of the second series.
    fn verdict_of(outcome: &Outcome) -> String {
        let rows = rows(outcome);
        verdict_text(&rows[1], &rows)
    }

    #[test]
    fn faster_and_slower_require_disjoint_rounds() {
        let judged =
            |metric, theirs: &[f64], ours: &[f64]| verdict_of(&outcome(metric, theirs, ours));
        assert_eq!(
            judged(Metric::Latency, &[10.0, 12.0], &[5.0, 9.0]),
            "faster"
        );
        assert_eq!(judged(Metric::Rate, &[10.0, 12.0], &[5.0, 9.0]), "slower");
        assert_eq!(judged(Metric::Rate, &[10.0, 12.0], &[11.0, 9.0]), "tie");
    }

    #[test]
    fn a_series_of_another_class_is_not_compared() {
        let mut outcome = outcome(Metric::Rate, &[10.0], &[5.0]);
        outcome.class = Some(Class::SharedCache);
        outcome.series[0].rounds[0].class = Some(Class::SharedCache);
        outcome.series[1].rounds[0].class = Some(Class::Remote);
        outcome.series[1].dropped = 2;
        let verdict = verdict_of(&outcome);
        assert!(verdict.contains("no round of the class"), "{verdict}");
        let rows = rows(&outcome);
        assert_eq!(kept(&rows[1]), "1/3");
        assert_eq!(verdict_text(&rows[0], &rows), "reference");
    }

    #[test]
    fn what_a_verdict_must_be_read_with_is_beside_it() {
        let mut outcome = outcome(Metric::Latency, &[10.0], &[5.0]);
        outcome.series[1] = series("sluice-pipe", Waiting::Spin, &[5.0]);
        outcome.series[1].rounds[0].noisy = true;
        outcome.series[1].rounds[0].measurement.figures = vec![(LOST, 3.0), (IMBALANCE, 1.5)];
        let rows = rows(&outcome);
        let expected = "faster, spin against sleep, noisy, busiest writer 1.50 ×, 3 lost";
        assert_eq!(remark(&rows[1], &rows), expected);
    }

    #[test]
    fn a_reason_is_listed_once() {
        let twice = [0, 1].map(|_| rows(&outcome(Metric::Rate, &[1.0], &[1.0])));
        assert_eq!(
            skipped_lines(&twice.concat()),
            "skipped: cacheline: spins (2 ×)\n"
        );
    }

    #[test]
    fn a_failure_is_distinguished_from_what_is_not_available() {
        let mut outcome = outcome(Metric::Rate, &[1.0], &[3.0]);
        outcome.skipped[0].failed = true;
        assert_eq!(
            skipped_lines(&rows(&outcome)),
            "FAILED: cacheline: spins (1 ×)\n"
        );
    }
}
