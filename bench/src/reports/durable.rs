// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tables of durable maps: the writes of report 5, whose store writes each value to a file, beside stores that survive a
//! crash; the time of a set; and ratios that are expected.

use sluice_testkit::spread::Spread;
use sluice_testkit::table::{Align, Table};
use sluice_testkit::units;

use super::criteria::{self, Criterion, Limit};
use super::map::{self, Operation, REPORTED_COUNT};
use crate::harness::rows::Row;

pub const SUITE: &str = "durable";
/// As in report 5.
pub use super::map::PROCESSES;

pub const OPERATION: &str = "durable sets";
pub const ALWAYS: &str = "sluice-durable-always";
pub const INTERVAL: &str = "sluice-durable-interval";
pub const SQLITE: &str = "sqlite";
pub const REDIS_ALWAYS: &str = "redis-always";
pub const REDIS_EVERYSEC: &str = "redis-everysec";
pub const WAKEUPS: &str = "eventfd";
pub const ALONE: &str = "sluice-volatile";
pub const BESIDE: &str = "sluice-volatile-beside-durable";
pub const IMPORT: &str = "sluice-import";
pub const ATTACH: &str = "sluice-attach";
pub const BATCHES: &str = "sluice-batches";

pub const VOLATILE_PROCESSES: usize = 2;
/// Writers of which several share a commit.
const SHARING: usize = 8;

/// First those that wait for the disk.
const STORES: [&str; 5] = [ALWAYS, SQLITE, REDIS_ALWAYS, INTERVAL, REDIS_EVERYSEC];

pub fn sets_title(processes: usize) -> String {
    match processes {
        1 => format!("{OPERATION} by 1 process"),
        _ => format!("{OPERATION} by {processes} processes"),
    }
}

/// The rows of this suite with results.
struct Rows<'a>(Vec<&'a Row>);

impl Rows<'_> {
    /// Of a mechanism that has one row.
    fn single(&self, mechanism: &str) -> Option<&Row> {
        let mut rows = self.0.iter();
        rows.find(|row| row.mechanism == mechanism).copied()
    }

    fn sets(&self, processes: usize, mechanism: &str) -> Option<&Row> {
        let title = sets_title(processes);
        let mut rows = self.0.iter();
        rows.find(|row| row.title == title && row.mechanism == mechanism)
            .copied()
    }

    /// Milliseconds for as many writes of each process as in the report.
    fn time(&self, processes: usize, mechanism: &str) -> Option<f64> {
        let rate = self.sets(processes, mechanism)?.median?;
        Some(1e3 * processes as f64 * REPORTED_COUNT / rate)
    }
}

/// None if the suite was not measured.
pub fn text(rows: &[Row]) -> Option<String> {
    let rows = Rows(super::measured_rows(SUITE, rows)?);
    Some(format!(
        "Report 5, tables 1 and 2, write: ms for 100,000 writes of each process, and percent of the line above\n\n{}{FOOTNOTE}\n\
         Sets of all processes per second, the median and the 99th percentile of the time of one, and sets per commit of sluiced\n\n{}\n\
         Criteria: ratios within rounds of one probe class\n\n{}",
        times(&rows),
        latencies(&rows),
        criteria::table("median of ratios", "its rounds", list(&rows)),
    ))
}

const FOOTNOTE: &str = "\
Times here are those of fewer writes, scaled. The milliseconds of the report are implausible, as its tables in the suite map\n\
say; their ratios do not depend on the unit. Its store writes a file for each key, and never waits for the disk. Here\n\
sluice-durable-always, sqlite and redis-always wait for it in each set, the others do not.\n";

/// Those that were measured.
fn measured(rows: &Rows) -> Vec<&'static str> {
    let has_row = |store: &&str| rows.single(store).is_some();
    STORES.into_iter().filter(has_row).collect()
}

fn times(rows: &Rows) -> Table {
    let (_, reported) = Operation::Set.reported();
    let stores = measured(rows);
    let mut columns = vec![
        ("processes", Align::Right),
        ("reported", Align::Right),
        ("", Align::Right),
    ];
    for store in &stores {
        columns.extend([(*store, Align::Right), ("", Align::Right)]);
    }
    let mut table = Table::new(&columns);
    for (line, processes) in PROCESSES.into_iter().enumerate() {
        let mut cells = vec![
            processes.to_string(),
            format!("{:.3}", reported[line]),
            map::percent(reported.map(Some), line),
        ];
        for store in &stores {
            let here = PROCESSES.map(|count| rows.time(count, store));
            cells.extend([map::ms(here[line]), map::percent(here, line)]);
        }
        table.row(cells);
    }
    table
}

fn latencies(rows: &Rows) -> Table {
    let mut table = Table::new(&[
        ("processes", Align::Right),
        ("store", Align::Left),
        ("sets/s", Align::Right),
        ("its rounds", Align::Right),
        ("P50", Align::Right),
        ("P99", Align::Right),
        ("sets/commit", Align::Right),
        ("its rounds", Align::Right),
    ]);
    for processes in PROCESSES {
        for store in STORES {
            if let Some(row) = rows.sets(processes, store) {
                table.row(latency_cells(processes, store, row));
            }
        }
    }
    table
}

fn latency_cells(processes: usize, store: &str, row: &Row) -> [String; 8] {
    let time = |of: fn(&crate::harness::samples::Summary) -> Option<u64>| {
        let time = row.distribution.as_ref().and_then(of);
        time.map_or_else(String::new, |time| units::nanoseconds(time as f64))
    };
    let shared = per_commit(row);
    [
        processes.to_string(),
        store.into(),
        row.median.map_or_else(String::new, units::figures),
        row.spread
            .map_or_else(String::new, |[min, max]| units::figures_range(min, max)),
        time(|all| Some(all.p50)),
        time(|all| all.p99),
        shared.map_or_else(String::new, |one| units::figures(one.median)),
        shared.map_or_else(String::new, |one| units::figures_range(one.min, one.max)),
    ]
}

fn per_commit(row: &Row) -> Option<Spread> {
    let rounds = row.msgs_per_commit.as_deref()?.iter();
    Spread::of(&rounds.map(|(_, count)| *count).collect::<Vec<_>>())
}

/// The time of a set by one process ÷ that of a transaction of SQLite and two wake-ups, in the rounds that measured all three.
fn one_writer(rows: &Rows) -> Option<Spread> {
    let of = [
        rows.sets(1, ALWAYS)?,
        rows.sets(1, SQLITE)?,
        rows.single(WAKEUPS)?,
    ];
    if of.iter().any(|row| row.probe_class != of[0].probe_class) {
        return None;
    }
    let [ours, transactions, wakeups] = of.map(|row| row.values.clone());
    let (ours, transactions, wakeups) = (ours?, transactions?, wakeups?);
    let of_round = |values: &[(usize, f64)], round| {
        let mut values = values.iter();
        values
            .find(|(other, _)| *other == round)
            .map(|(_, value)| *value)
    };
    let ratios = ours.iter().filter_map(|(round, rate)| {
        let transaction = 1e9 / of_round(&transactions, *round)?;
        let wakeups = of_round(&wakeups, *round)?;
        Some(1e9 / rate / (transaction + wakeups))
    });
    Spread::of(&ratios.collect::<Vec<_>>())
}

fn list(rows: &Rows) -> Vec<Criterion> {
    let ratio = |text: String, of: Option<&Row>, to: Option<&Row>, limit| Criterion {
        text,
        ratio: of.zip(to).and_then(|(of, to)| of.ratio_within_rounds(to)),
        limit,
    };
    let grows = |store: &str, limit| {
        let text = format!("{store}: rate of 10 processes ÷ 1");
        ratio(text, rows.sets(10, store), rows.sets(1, store), limit)
    };
    let rates = |of: &str, to: &str, processes| {
        let by = sets_title(processes);
        let text = format!("rate of {of} ÷ {to}, {by}");
        ratio(
            text,
            rows.sets(processes, of),
            rows.sets(processes, to),
            Limit::None,
        )
    };
    let sharing = rows.sets(SHARING, ALWAYS);
    let restored = |text: &str, limit| {
        let to = if text == "import" { IMPORT } else { BATCHES };
        let text = format!("time to restore a map, attach ÷ {text}");
        ratio(text, rows.single(ATTACH), rows.single(to), limit)
    };
    vec![
        grows(ALWAYS, Limit::AtLeast(3.0)),
        Criterion {
            text: format!("{ALWAYS}, {SHARING} processes: sets per commit"),
            ratio: sharing.and_then(per_commit),
            limit: Limit::AtLeast(4.0),
        },
        ratio(
            format!(
                "rate of volatile sets by {VOLATILE_PROCESSES} processes, beside an idle durable map ÷ alone"
            ),
            rows.single(BESIDE),
            rows.single(ALONE),
            Limit::AtLeast(0.95),
        ),
        Criterion {
            text: "time of a set by 1 process ÷ a transaction of SQLite and two wake-ups".into(),
            ratio: one_writer(rows),
            limit: Limit::AtMost(1.3),
        },
        restored("import", Limit::AtMost(1.2)),
        restored("batches from memory", Limit::None),
        grows(SQLITE, Limit::None),
        grows(REDIS_ALWAYS, Limit::None),
        grows(INTERVAL, Limit::None),
        rates(ALWAYS, SQLITE, 1),
        rates(ALWAYS, SQLITE, 10),
        rates(ALWAYS, REDIS_ALWAYS, 1),
        rates(ALWAYS, REDIS_ALWAYS, 10),
        rates(INTERVAL, REDIS_EVERYSEC, 1),
        rates(INTERVAL, REDIS_EVERYSEC, 10),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(title: String, mechanism: &str, values: [f64; 3]) -> Row {
        let values: Vec<_> = values.into_iter().enumerate().collect();
        Row {
            suite: SUITE.into(),
            mechanism: mechanism.into(),
            title,
            median: Some(values[0].1),
            values: Some(values),
            ..Row::default()
        }
    }

    fn sets(processes: usize, mechanism: &str, rates: [f64; 3]) -> Row {
        row(sets_title(processes), mechanism, rates)
    }

    fn line<'a>(text: &'a str, parts: &[&str]) -> &'a str {
        let has = |line: &&str| parts.iter().all(|part| line.contains(part));
        text.lines().find(has).unwrap()
    }

    #[test]
    fn rates_become_times_beside_those_of_the_report() {
        let rows = [
            sets(1, ALWAYS, [1000.0; 3]),
            sets(2, ALWAYS, [1000.0; 3]),
            sets(2, SQLITE, [500.0; 3]),
        ];
        let text = text(&rows).unwrap();
        let two = line(&text, &["4.223", "137 %"]);
        for part in ["200000", "200 %", "400000"] {
            assert!(two.contains(part), "{part} in {two}");
        }
        let heads = line(&text, &["reported", SQLITE]);
        assert!(!heads.contains(REDIS_EVERYSEC), "{heads}");
    }

    #[test]
    fn one_writer_is_compared_with_a_sum_in_each_round() {
        // 1000 µs ÷ (700 µs + 100 µs), and others in the other rounds.
        let rows = [
            sets(1, ALWAYS, [1000.0, 1000.0, 1250.0]),
            sets(1, SQLITE, [1e6 / 700.0, 1e6 / 900.0, 1e6 / 700.0]),
            row("two wake-ups".into(), WAKEUPS, [100_000.0; 3]),
        ];
        let text = text(&rows).unwrap();
        let one = line(&text, &["two wake-ups", "≤ 1.3"]);
        for part in ["1.00", "1.25", " met"] {
            assert!(one.contains(part), "{part} in {one}");
        }
    }

    #[test]
    fn sets_per_commit_are_a_criterion() {
        let mut shared = sets(SHARING, ALWAYS, [1000.0; 3]);
        shared.msgs_per_commit = Some(vec![(0, 3.5), (1, 3.0), (2, 5.0)]);
        let text = text(&[shared]).unwrap();
        let commits = line(&text, &["sets per commit", "≥ 4"]);
        assert!(
            commits.contains("3.50") && commits.ends_with("not met"),
            "{commits}"
        );
    }

    #[test]
    fn restoring_is_compared_with_an_import() {
        let rows = [
            row("restoring 9 entries, each".into(), IMPORT, [100.0; 3]),
            row("restoring 9 entries, each".into(), ATTACH, [110.0; 3]),
        ];
        let text = text(&rows).unwrap();
        let restored = line(&text, &["attach ÷ import", "≤ 1.2"]);
        assert!(
            restored.contains("1.10") && restored.ends_with(" met"),
            "{restored}"
        );
    }
}
