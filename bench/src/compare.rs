// SPDX-License-Identifier: MIT OR Apache-2.0
//! The subcommand compare: what became faster or slower between two runs, beyond the spread of both.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Args;
use serde::Serialize;
use serde_with::skip_serializing_none;
use sluice_testkit::host::Host;
use sluice_testkit::table::{Align, Table};

use crate::harness::figures::{Unit, Values};
use crate::harness::pinning::Placement;
use crate::harness::rows::{Results, Row};
use crate::harness::samples::Change;
use crate::harness::waiting::Waiting;

/// Compare two results: what became faster or slower, beyond the spread of both
#[derive(Args, Debug)]
#[command(after_help = "\
Rows are compared if suite, conditions, mechanism, way of waiting, host and distance of the processors are the same. A row is
faster or slower only if the rounds of the two runs do not overlap. The change is that of the median, in percent.

Exit status:
  0  no result of Sluice became slower by more than the threshold, or there is no threshold
  1  a result of Sluice became slower by more than the threshold
  2  wrong usage, an unreadable file, or a threshold without comparable results of Sluice")]
pub struct Options {
    /// Results of the earlier run, written by --json
    #[arg(value_name = "BEFORE.JSON")]
    before: PathBuf,

    /// Results of the later run
    #[arg(value_name = "AFTER.JSON")]
    after: PathBuf,

    /// Fail if a result of Sluice became slower, beyond the spread, by more than this
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    threshold: Option<f64>,

    /// Print the comparison as JSON
    #[arg(long)]
    json: bool,
}

fn percent(text: &str) -> Result<f64, String> {
    let percent = text.parse().ok();
    percent
        .filter(|percent| (0.0..=1e6).contains(percent))
        .ok_or_else(|| "expected a percentage of at least 0".into())
}

/// Whether the results of Sluice are within the threshold.
pub fn run(options: &Options) -> Result<bool> {
    let (before, after) = (
        Results::read(&options.before)?,
        Results::read(&options.after)?,
    );
    let comparison = compare(&before, &after);
    let output = match options.json {
        true => serde_json::to_string_pretty(&comparison)? + "\n",
        false => text(&comparison),
    };
    io::stdout().write_all(output.as_bytes())?;
    options
        .threshold
        .map_or(Ok(true), |threshold| holds(&comparison, threshold))
}

fn holds(comparison: &Comparison, threshold: f64) -> Result<bool> {
    let ours = || comparison.compared.iter().filter(|one| one.key.is_sluice());
    ensure!(
        ours().next().is_some(),
        "no comparable results of Sluice for --threshold; compare two runs of one host with the module loaded"
    );
    let slower = |one: &&Compared| one.change == Change::Slower && one.percent.abs() > threshold;
    for one in ours().filter(slower) {
        let (name, percent) = (one.key.name(), one.percent);
        eprintln!("slower by more than {threshold} %: {name} ({percent:+.1} %)");
    }
    Ok(!ours().any(|one| slower(&one)))
}

/// The identity of a row.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Key {
    suite: String,
    title: String,
    mechanism: String,
    label: String,
    size: Option<usize>,
    placement: Option<Placement>,
    waiting: Option<Waiting>,
}

impl Key {
    fn of(row: &Row) -> Self {
        Self {
            suite: row.suite.clone(),
            title: row.title.clone(),
            mechanism: row.mechanism.clone(),
            label: row.label.clone(),
            size: row.size,
            placement: row.placement,
            waiting: row.waiting,
        }
    }

    /// The way of waiting of a skipped row is unknown.
    fn matches(&self, other: &Self) -> bool {
        let waiting = self.waiting.and(other.waiting);
        let with = |key: &Self| Self {
            waiting: waiting.and(key.waiting),
            ..key.clone()
        };
        with(self) == with(other)
    }

    fn is_sluice(&self) -> bool {
        self.mechanism.starts_with("sluice")
    }

    fn name(&self) -> String {
        format!("{} {} {}", self.suite, self.title, self.label)
    }
}

#[derive(Debug, Serialize)]
struct Compared {
    #[serde(flatten)]
    key: Key,
    unit: Unit,
    before: Values,
    after: Values,
    /// The change of the median in percent.
    percent: f64,
    change: Change,
    noisy: bool,
}

/// A row of both runs that cannot be compared.
#[derive(Debug, Serialize)]
struct NotCompared {
    #[serde(flatten)]
    key: Key,
    #[serde(rename = "why")]
    reason: String,
}

#[derive(Debug, Default, Serialize)]
struct Comparison {
    compared: Vec<Compared>,
    #[serde(rename = "apart")]
    not_compared: Vec<NotCompared>,
    only_before: Vec<Key>,
    only_after: Vec<Key>,
}

fn compare(before: &Results, after: &Results) -> Comparison {
    let other_host = different_host(&before.host, &after.host);
    let mut comparison = Comparison {
        only_before: only_in(&before.rows, &after.rows),
        only_after: only_in(&after.rows, &before.rows),
        ..Comparison::default()
    };
    for old in &before.rows {
        let key = Key::of(old);
        let Some(new) = after.rows.iter().find(|new| Key::of(new).matches(&key)) else {
            continue;
        };
        if !old.is_measured() && !new.is_measured() {
            continue;
        }
        let host = other_host.clone().map_or(Ok(()), Err);
        match host.and_then(|()| compare_rows(&key, old, new)) {
            Ok(compared) => comparison.compared.push(compared),
            Err(reason) => comparison.not_compared.push(NotCompared { key, reason }),
        }
    }
    comparison
}

/// Rows with a result in one run that the other run does not have, not even as skipped.
fn only_in(rows: &[Row], others: &[Row]) -> Vec<Key> {
    let others: Vec<Key> = others.iter().map(Key::of).collect();
    let measured = rows.iter().filter(|row| row.is_measured());
    measured
        .map(Key::of)
        .filter(|key| !others.iter().any(|other| other.matches(key)))
        .collect()
}

/// The kernel may differ: runs on different kernels are compared on purpose.
fn different_host(before: &Host, after: &Host) -> Option<String> {
    let properties = |host: &Host| {
        [
            ("name", host.name.clone()),
            ("processor", host.cpu.clone()),
            ("number of processors", host.cpus.to_string()),
            ("accelerator", host.accelerator.clone()),
            ("clock", host.clocksource.clone()),
        ]
    };
    let both = properties(before).into_iter().zip(properties(after));
    let differences: Vec<String> = both
        .filter(|(old, new)| old != new)
        .map(|((what, old), (_, new))| format!("{what} {old} before, {new} after"))
        .collect();
    (!differences.is_empty()).then(|| format!("different host: {}", differences.join("; ")))
}

/// Compares two rows, or returns the reason why they are not comparable.
fn compare_rows(key: &Key, old: &Row, new: &Row) -> Result<Compared, String> {
    let (unit, before) = result(old).map_err(|reason| format!("before: {reason}"))?;
    let (unit_after, after) = result(new).map_err(|reason| format!("after: {reason}"))?;
    if old.probe_class != new.probe_class {
        let [old, new] = [old, new].map(|row| row.probe_class.map_or("unknown", |one| one.name()));
        return Err(format!(
            "different distance of the processors: {old} before, {new} after"
        ));
    }
    if unit != unit_after {
        return Err(format!(
            "different unit: {unit:?} before, {unit_after:?} after"
        ));
    }
    Ok(Compared {
        key: Key {
            waiting: old.waiting.or(new.waiting),
            ..key.clone()
        },
        unit,
        percent: (after.median / before.median - 1.0) * 100.0,
        change: match (after.median < before.median) == unit.less_is_better() {
            _ if before.overlaps(&after) => Change::Tie,
            true => Change::Faster,
            false => Change::Slower,
        },
        before,
        after,
        noisy: old.is_noisy() || new.is_noisy(),
    })
}

fn result(row: &Row) -> Result<(Unit, Values), String> {
    let Some((unit, value)) = row.unit.zip(row.value.clone()) else {
        let status = match row.failed {
            Some(true) => "failed",
            _ => "skipped",
        };
        let reason = row.skipped.as_deref().unwrap_or("unknown reason");
        return Err(format!("{status}: {reason}"));
    };
    match value.median > 0.0 {
        true => Ok((unit, value)),
        false => Err(format!("its median is {}", value.median)),
    }
}

fn text(comparison: &Comparison) -> String {
    let compared = &comparison.compared;
    let mut parts = Vec::new();
    if !compared.is_empty() {
        let count = |change| compared.iter().filter(|one| one.change == change).count();
        let [faster, slower, tie] = [Change::Faster, Change::Slower, Change::Tie].map(count);
        parts.push(format!(
            "{}\n{faster} faster, {slower} slower, {tie} within spread.\n",
            table(compared)
        ));
    }
    let mut list = |heading: &str, lines: Vec<String>| {
        let lines: String = lines.iter().map(|line| format!("  {line}\n")).collect();
        if !lines.is_empty() {
            parts.push(format!("{heading}\n{lines}"));
        }
    };
    let not_compared = comparison.not_compared.iter();
    let not_compared = not_compared.map(|one| format!("{}: {}", one.key.name(), one.reason));
    let names = |keys: &[Key]| keys.iter().map(Key::name).collect();
    list("Not compared:", not_compared.collect());
    list("Only before:", names(&comparison.only_before));
    list("Only after:", names(&comparison.only_after));
    match parts.is_empty() {
        true => "Neither run has a comparable row.\n".into(),
        false => parts.join("\n"),
    }
}

fn table(compared: &[Compared]) -> Table {
    let mut table = Table::new(&[
        ("conditions", Align::Left),
        ("mechanism", Align::Left),
        ("before", Align::Right),
        ("its rounds", Align::Right),
        ("after", Align::Right),
        ("its rounds", Align::Right),
        ("change", Align::Right),
        ("", Align::Left),
    ]);
    for one in compared {
        let figures = |run: &Values| [one.unit.text(run.median), one.unit.range(run.spread)];
        let conditions = [
            format!("{} {}", one.key.suite, one.key.title),
            one.key.label.clone(),
        ];
        let noisy = if one.noisy { ", noisy" } else { "" };
        let change = [
            format!("{:+.1} %", one.percent),
            format!("{}{noisy}", one.change.name()),
        ];
        let cells = [
            conditions,
            figures(&one.before),
            figures(&one.after),
            change,
        ];
        table.row(cells.into_iter().flatten());
    }
    table
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::harness::class::Class;

    fn row(mechanism: &str, unit: Unit, values: &[f64]) -> Row {
        Row {
            suite: "rtt".into(),
            title: "1 B same-cpu".into(),
            mechanism: mechanism.into(),
            label: mechanism.into(),
            unit: Some(unit),
            value: Values::of(values.iter().copied().enumerate()),
            waiting: Some(Waiting::Sleep),
            ..Row::default()
        }
    }

    fn ours(values: &[f64]) -> Row {
        row("sluice-pipe", Unit::Nanoseconds, values)
    }

    fn results(rows: &[Row]) -> Results {
        let mut host = Host::probe();
        host.accelerator = "kvm".into();
        Results {
            host,
            clock_ns: 40,
            versions: BTreeMap::new(),
            rows: rows.to_vec(),
            date: String::new(),
        }
    }

    fn one(before: Row, after: Row) -> Comparison {
        compare(&results(&[before]), &results(&[after]))
    }

    #[test]
    fn faster_and_slower_need_disjoint_rounds_and_follow_the_unit() {
        let (low, high) = ([9.0, 10.0, 11.0], [19.0, 20.0, 21.0]);
        let (time, rate) = (Unit::Nanoseconds, Unit::BytesPerSecond);
        for (unit, before, after, expected) in [
            (time, &high[..], &low[..], Change::Faster),
            (time, &low, &high, Change::Slower),
            (rate, &high, &low, Change::Slower),
            (rate, &low, &high, Change::Faster),
            (time, &low, &low, Change::Tie),
            (time, &[9.0, 10.0, 30.0], &[12.0, 29.0, 31.0], Change::Tie),
        ] {
            let pipe = |values| row("sluice-pipe", unit, values);
            let comparison = one(pipe(before), pipe(after));
            assert_eq!(comparison.compared[0].change, expected);
            assert_eq!(holds(&comparison, 0.0).unwrap(), expected != Change::Slower);
        }
    }

    #[test]
    fn a_threshold_is_for_comparable_results_of_sluice() {
        let slower = one(ours(&[100.0]), ours(&[110.0]));
        assert!(holds(&slower, 11.0).unwrap() && !holds(&slower, 9.0).unwrap());
        let pipe = |value| row("pipe", Unit::Nanoseconds, &[value]);
        assert!(holds(&one(pipe(1.0), pipe(2.0)), 5.0).is_err());
        assert_eq!(percent("5"), Ok(5.0));
        for wrong in ["-1", "inf", "NaN", "5 %", ""] {
            assert!(percent(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_and_ways_of_waiting_distinguish_rows() {
        let larger = Row {
            size: Some(64),
            ..ours(&[1.0])
        };
        let spins = Row {
            waiting: Some(Waiting::Spin),
            ..ours(&[1.0])
        };
        for other in [larger, spins] {
            let comparison = one(ours(&[1.0]), other.clone());
            assert!(comparison.compared.is_empty());
            assert_eq!(comparison.only_before, [Key::of(&ours(&[1.0]))]);
            assert_eq!(comparison.only_after, [Key::of(&other)]);
        }
    }

    #[test]
    fn what_cannot_be_compared_is_listed_with_its_reason() {
        let of_class = |class| Row {
            probe_class: Some(class),
            ..ours(&[10.0])
        };
        let (near, far) = (of_class(Class::SharedCache), of_class(Class::Remote));
        let broken = Row {
            waiting: None,
            value: None,
            skipped: Some("it broke".into()),
            failed: Some(true),
            ..ours(&[])
        };
        let mut elsewhere = results(&[ours(&[1.0])]);
        elsewhere.host.accelerator = "tcg".into();
        for (comparison, reason) in [
            (
                one(near, far),
                "different distance of the processors: near before, far after",
            ),
            (one(ours(&[1.0]), broken.clone()), "after: failed: it broke"),
            (
                compare(&results(&[ours(&[1.0])]), &elsewhere),
                "different host: accelerator kvm before, tcg after",
            ),
        ] {
            assert!(comparison.compared.is_empty());
            assert_eq!(comparison.not_compared[0].reason, reason);
        }
        assert!(one(broken.clone(), broken).not_compared.is_empty());
    }

    #[test]
    fn the_text_has_both_medians_the_change_and_what_only_one_run_has() {
        let pipe = |values: &[f64]| row("pipe", Unit::Nanoseconds, values);
        let text_of =
            |before: &[Row], after: &[Row]| text(&compare(&results(before), &results(after)));
        let changed = text_of(
            &[pipe(&[900.0, 1000.0, 1100.0])],
            &[pipe(&[1200.0, 1250.0, 1300.0])],
        );
        for part in [
            "1.00 µs",
            "0.90 … 1.10 µs",
            "1.25 µs",
            "+25.0 %",
            "slower",
            "0 faster, 1 slower, 0 within spread.",
        ] {
            assert!(changed.contains(part), "{part} is not in\n{changed}");
        }
        let fifo = row("fifo", Unit::Nanoseconds, &[1.0]);
        assert_eq!(
            text_of(&[fifo], &[]),
            "Only before:\n  rtt 1 B same-cpu fifo\n"
        );
        assert!(text_of(&[], &[]).contains("Neither run"));
    }
}
