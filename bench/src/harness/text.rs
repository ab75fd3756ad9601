// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results as a text table.

use sluice_testkit::table::{Align, Table};
use sluice_testkit::units;

use super::class::Class;
use super::figures::{
    BYTES_PER_SECOND, CPU_PER_MESSAGE, IMBALANCE, LOST, MESSAGES_PER_SECOND, SWITCHES_PER_MESSAGE,
    Values,
};
use super::rows::{Results, Row};

const TITLES: &str = "conditions | mechanism | median> | its rounds> | p90> | p99 or messages> | CPU/message> | ratio> | \
    its rounds> | kept> | class | remarks";

/// An empty table with these titles of its columns. A title that ends with `>` aligns its column to the right.
pub fn table(titles: &str) -> Table {
    let columns = cells(titles).map(|title| match title.strip_suffix('>') {
        Some(title) => (title.trim_end(), Align::Right),
        None => (title, Align::Left),
    });
    Table::new(&columns.collect::<Vec<_>>())
}

pub fn cells(line: &str) -> impl Iterator<Item = &str> {
    let line = line.trim();
    let inner = line
        .strip_prefix('|')
        .and_then(|rest| rest.strip_suffix('|'));
    inner.unwrap_or(line).split('|').map(str::trim)
}

pub fn text(results: &Results) -> String {
    let mut table = table(TITLES);
    let mut last = String::new();
    for row in results.rows.iter().filter(|row| row.is_measured()) {
        let title = format!("{} {}", row.suite, row.title);
        let cells = line(row, &results.rows);
        let shown = if title == last { "" } else { &title };
        table.row([shown.to_string()].into_iter().chain(cells));
        last = title;
    }
    let waking = results.host.waking_ns.map(|cost| {
        let cost = units::nanoseconds(cost as f64);
        format!("\nwake-up of a process that sleeps on another processor, p50: {cost}")
    });
    format!(
        "{}{}\nreading the clock, which each sample contains: {}\n\n{table}{}",
        results.host.line(),
        waking.unwrap_or_default(),
        units::nanoseconds(results.clock_ns as f64),
        skipped_lines(&results.rows)
    )
}

fn line(row: &Row, rows: &[Row]) -> [String; 11] {
    let [p90, detail] = detail(row);
    let [ratio, ratios] = row.ratio_texts().unwrap_or_default();
    let cpu = row.median_of(CPU_PER_MESSAGE).map(units::nanoseconds);
    let kept = row.rounds();
    [
        row.label.clone(),
        row.median_text().unwrap_or_default(),
        row.range_text().unwrap_or_default(),
        p90,
        detail,
        cpu.unwrap_or_default(),
        ratio,
        ratios,
        format!("{kept}/{}", kept + row.dropped_rounds.unwrap_or_default()),
        row.probe_class.map_or("", Class::name).into(),
        remark(row, rows),
    ]
}

fn detail(row: &Row) -> [String; 2] {
    // A rate of operations is the median itself.
    let messages = row.median_of(MESSAGES_PER_SECOND);
    let messages = messages.filter(|_| row.figures.contains_key(BYTES_PER_SECOND));
    let messages = messages.map(units::per_second).unwrap_or_default();
    let time = |ns: Option<u64>| ns.map_or_else(String::new, |ns| units::nanoseconds(ns as f64));
    match (row.less_is_better(), row.distribution) {
        (true, Some(all)) => [time(all.p90), time(all.p99)],
        (true, None) => Default::default(),
        (false, _) => [String::new(), messages],
    }
}

/// What it is compared with, or how it compares, the cost and balance of several writers, and lost packets.
fn remark(row: &Row, rows: &[Row]) -> String {
    let switches = row.median_of(SWITCHES_PER_MESSAGE);
    let imbalance = row.median_of(IMBALANCE);
    let lost = row.figures.get(LOST).map(Values::sum);
    let parts = [
        verdict(row, rows),
        switches.map(|count| format!("{} context switches/message", units::figures(count))),
        imbalance.map(|times| format!("busiest writer {} ×", units::figures(times))),
        lost.filter(|&packets| packets > 0.0)
            .map(|packets| format!("{packets} lost")),
        row.calibration.as_ref().map(|calibration| {
            let (speed, reason) = (units::ratio(calibration.median), &calibration.reason);
            let reason = reason.iter().map(|reason| format!(": {reason}"));
            let reason = reason.collect::<String>();
            format!("{speed} of its own program's speed{reason}")
        }),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Faster or slower than the reference, and what the comparison must be read with.
fn verdict(row: &Row, rows: &[Row]) -> Option<String> {
    if row.is_reference {
        return Some("reference".into());
    }
    if row.other_class {
        return Some("not compared: no round of the class of the others".into());
    }
    if let Some(common) = row.few_common_rounds() {
        let rounds = units::counted(common, "common round");
        return Some(format!("not compared: {rounds} of the same class"));
    }
    let mut verdict = row.change_name(row.change()?).to_owned();
    if row.ratio.as_ref()?.across_waiting {
        verdict += ", spin against sleep";
    }
    if row.is_noisy() || row.reference(rows)?.is_noisy() {
        verdict += ", noisy";
    }
    Some(verdict)
}

fn skipped_lines(rows: &[Row]) -> String {
    let mut reasons: Vec<(String, usize)> = Vec::new();
    for row in rows.iter().filter(|row| row.skipped.is_some()) {
        let status = if row.failed { "FAILED" } else { "skipped" };
        let reason = row.skipped.as_deref().unwrap_or_default();
        let text = format!("{status}: {}: {reason}", row.label);
        match reasons.iter_mut().find(|(known, _)| *known == text) {
            Some((_, times)) => *times += 1,
            None => reasons.push((text, 1)),
        }
    }
    let line = |(text, times)| format!("{text} ({times} ×)\n");
    reasons.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::rounds::Metric;
    use crate::harness::turns::tests::rows_of;
    use crate::harness::waiting::Waiting;

    #[test]
    fn what_a_verdict_must_be_read_with_is_beside_it() {
        let mut rows = rows_of(Metric::Latency, &[10.0], &[5.0]);
        assert_eq!(remark(&rows[0], &rows), "reference");
        assert_eq!(remark(&rows[1], &rows), "faster");
        let reference = rows[0].clone();
        let ours = &mut rows[1];
        ours.waiting = Some(Waiting::Spin);
        ours.compare_with(&reference);
        ours.noisy_rounds = Some(1);
        for (name, value) in [(LOST, 3.0), (IMBALANCE, 1.5)] {
            let values = Values::of([(0, value)].into_iter()).unwrap();
            ours.figures.insert(name.into(), values);
        }
        let expected = "faster, spin against sleep, noisy, busiest writer 1.50 ×, 3 lost";
        assert_eq!(remark(&rows[1], &rows), expected);
        rows[1].other_class = true;
        assert!(remark(&rows[1], &rows).contains("no round of the class"));
    }

    #[test]
    fn a_reason_is_listed_once_and_a_failure_is_distinguished() {
        let rows = || rows_of(Metric::Rate, &[1.0], &[1.0]);
        let mut rows = [rows(), rows()].concat();
        let text = skipped_lines(&rows);
        assert_eq!(text, "skipped: cacheline: spins (2 ×)\n");
        rows[2].failed = true;
        assert!(skipped_lines(&rows).starts_with("FAILED: cacheline: spins (1 ×)\n"));
    }
}
