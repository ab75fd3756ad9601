// SPDX-License-Identifier: MIT OR Apache-2.0
//! The subcommand compare: what became faster or slower between two runs, beyond the spread of both.

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use sluice_testkit::host::Host;

use crate::harness::class::Class;
use crate::harness::figures::{Unit, Values};
use crate::harness::rows::{Results, Row};
use crate::harness::samples::Change;
use crate::harness::text::table;
use crate::options::number_in;

/// Compare two results: what became faster or slower, beyond the spread of both
#[derive(Args, Debug)]
#[command(after_help = "\
Rows are compared if suite, conditions, mechanism, way of waiting, host and distance of the processors are the same. A row is
faster or slower only if the rounds of the two runs do not overlap. The change of the median is in percent.

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
    #[arg(long, value_name = "PERCENT", value_parser = |text: &str| number_in(text, 0.0..=1e6, "a percentage of at least 0"))]
    threshold: Option<f64>,
}

/// Whether the results of Sluice are within the threshold.
pub fn run(options: &Options) -> Result<bool> {
    let before = Results::read(&options.before)?;
    let after = Results::read(&options.after)?;
    let (compared, notes) = compare(&before, &after);
    print!("{}", text(&compared, &notes));
    let threshold = options.threshold;
    threshold.map_or(Ok(true), |threshold| holds(&compared, threshold))
}

fn holds(compared: &[Compared], threshold: f64) -> Result<bool> {
    let mut ours = compared.iter().filter(|one| one.before.is_sluice());
    ensure!(
        ours.clone().next().is_some(),
        "no comparable results of Sluice for --threshold; compare two runs of one host with the module loaded"
    );
    let is_slower = |one: &Compared| one.change == Change::Slower && one.percent.abs() > threshold;
    for one in ours.clone().filter(|one| is_slower(one)) {
        let (name, percent) = (name(one.before), one.percent);
        eprintln!("slower by more than {threshold} %: {name} ({percent:+.1} %)");
    }
    Ok(!ours.any(is_slower))
}

struct Compared<'a> {
    before: &'a Row,
    after: &'a Row,
    percent: f64,
    change: Change,
}

fn name(row: &Row) -> String {
    format!("{} {} {}", row.suite, row.title, row.label)
}

/// Whether both are of the same subject and conditions. The way of waiting of a skipped row is unknown.
fn matches(row: &Row, other: &Row) -> bool {
    let key = |row: &Row| (name(row), row.mechanism.clone(), row.size, row.placement);
    let both_waiting = row.waiting.zip(other.waiting);
    key(row) == key(other) && both_waiting.is_none_or(|(one, other)| one == other)
}

/// The rows of both runs, and a line for each that has a result but is not compared.
fn compare<'a>(before: &'a Results, after: &'a Results) -> (Vec<Compared<'a>>, Vec<String>) {
    let (mut compared, mut notes) = (Vec::new(), Vec::new());
    let of_other = |row: &Row, other: &'a Results| other.rows.iter().find(|one| matches(one, row));
    for old in &before.rows {
        match of_other(old, after) {
            Some(new) if old.is_measured() || new.is_measured() => {
                let same_host = expect_same_host(&before.host, &after.host);
                match same_host.and_then(|()| compare_rows(old, new)) {
                    Ok(one) => compared.push(one),
                    Err(reason) => notes.push(format!("Not compared: {}: {reason:#}", name(old))),
                }
            }
            None if old.is_measured() => notes.push(format!("Only before: {}", name(old))),
            _ => {}
        }
    }
    let only_after = after.rows.iter().filter(|row| row.is_measured());
    let only_after = only_after.filter(|row| of_other(row, before).is_none());
    notes.extend(only_after.map(|row| format!("Only after: {}", name(row))));
    (compared, notes)
}

/// The kernel may differ: runs on different kernels are compared on purpose.
fn expect_same_host(before: &Host, after: &Host) -> Result<()> {
    let [before, after] = [before, after].map(|host| {
        format!(
            "{}, {} × {}, accelerator {}, clock {}",
            host.name, host.cpus, host.cpu, host.accelerator, host.clocksource
        )
    });
    ensure!(
        before == after,
        "different host: {before} before; {after} after"
    );
    Ok(())
}

/// Compares two rows, unless they are not comparable.
fn compare_rows<'a>(before: &'a Row, after: &'a Row) -> Result<Compared<'a>> {
    let (unit, old) = result(before).context("before")?;
    let (unit_after, new) = result(after).context("after")?;
    let class = |row: &Row| row.probe_class.map_or("unknown", Class::name);
    let (class, class_after) = (class(before), class(after));
    ensure!(
        class == class_after,
        "different distance of the processors: {class} before, {class_after} after"
    );
    ensure!(
        unit == unit_after,
        "different unit: {unit:?} before, {unit_after:?} after"
    );
    let ratio = new.ratio_of_medians(old);
    Ok(Compared {
        before,
        after,
        percent: (ratio.median - 1.0) * 100.0,
        change: Change::of_ratios(ratio.spread, unit.less_is_better()),
    })
}

fn result(row: &Row) -> Result<(Unit, &Values)> {
    let Some((unit, value)) = row.unit.zip(row.value.as_ref()) else {
        let reason = row.skipped.as_deref().unwrap_or("unknown reason");
        bail!(
            "{}: {reason}",
            if row.failed { "failed" } else { "skipped" }
        );
    };
    ensure!(value.median > 0.0, "its median is {}", value.median);
    Ok((unit, value))
}

fn text(compared: &[Compared], notes: &[String]) -> String {
    if compared.is_empty() && notes.is_empty() {
        return "Neither run has a comparable row.\n".into();
    }
    let mut table =
        table("conditions | mechanism | before> | its rounds> | after> | its rounds> | change> | ");
    for one in compared {
        let is_noisy = one.before.is_noisy() || one.after.is_noisy();
        let noisy = if is_noisy { ", noisy" } else { "" };
        table.row([
            format!("{} {}", one.before.suite, one.before.title),
            one.before.label.clone(),
            one.before.median_text().unwrap_or_default(),
            one.before.range_text().unwrap_or_default(),
            one.after.median_text().unwrap_or_default(),
            one.after.range_text().unwrap_or_default(),
            format!("{:+.1} %", one.percent),
            format!("{}{noisy}", one.change.name()),
        ]);
    }
    let count = |change| compared.iter().filter(|one| one.change == change).count();
    let [faster, slower, tie] = [Change::Faster, Change::Slower, Change::Tie].map(count);
    let notes: String = notes.iter().map(|note| format!("{note}\n")).collect();
    format!("{table}\n{faster} faster, {slower} slower, {tie} within spread.\n{notes}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::rounds::Metric;
    use crate::harness::turns::tests::rows_of;
    use crate::harness::waiting::Waiting;

    fn ours(metric: Metric, values: &[f64]) -> Row {
        rows_of(metric, values, values).swap_remove(1)
    }

    #[test]
    fn faster_and_slower_need_disjoint_rounds_follow_the_unit_and_have_a_threshold() {
        let (low, high) = ([9.0, 10.0, 11.0], [19.0, 20.0, 21.0]);
        let (time, rate) = (Metric::Latency, Metric::Rate);
        for (metric, before, after, expected) in [
            (time, high, low, Change::Faster),
            (time, low, high, Change::Slower),
            (rate, high, low, Change::Slower),
            (rate, low, high, Change::Faster),
            (time, low, low, Change::Tie),
            (time, [9.0, 10.0, 30.0], [12.0, 29.0, 31.0], Change::Tie),
        ] {
            let [before, after] = [before, after].map(|values| ours(metric, &values));
            let compared = [compare_rows(&before, &after).unwrap()];
            assert_eq!(compared[0].change, expected);
            assert!(holds(&compared, 101.0).unwrap());
            assert_eq!(holds(&compared, 0.0).unwrap(), expected != Change::Slower);
        }
        let pipe = &rows_of(time, &[1.0], &[1.0])[0];
        assert!(holds(&[compare_rows(pipe, pipe).unwrap()], 5.0).is_err());
    }

    #[test]
    fn the_text_has_what_is_compared_and_what_is_not_with_its_reason() {
        let with = |change: fn(&mut Row)| {
            let mut row = ours(Metric::Latency, &[1000.0]);
            change(&mut row);
            Results::new(Host::probe(), vec![row])
        };
        let before = with(|row| row.probe_class = Some(Class::Near));
        let far = with(|row| row.probe_class = Some(Class::Far));
        let broken = with(|row| {
            (row.waiting, row.value, row.failed) = (None, None, true);
            row.skipped = Some("it broke".into());
        });
        let larger = with(|row| row.size = Some(64));
        let spins = with(|row| row.waiting = Some(Waiting::Spin));
        let mut elsewhere = before.clone();
        elsewhere.host.accelerator = "another".into();
        let row = "rtt 1 B same-cpu sluice-pipe";
        let same = "1.00 µs 1.00 … 1.00 µs 1.00 µs 1.00 … 1.00 µs +0.0 % tie 0 faster, 0 slower, 1 within spread.";
        let distance = "distance of the processors: near before, far after";
        let other_host = format!("Not compared: {row}: different host: ");
        let only = format!("Only before: {row} Only after: {row}");
        for (before, after, expected) in [
            (&before, &before, same),
            (&before, &far, distance),
            (&before, &broken, "sluice-pipe: after: failed: it broke"),
            (&before, &elsewhere, &other_host),
            (&before, &larger, &only),
            (&before, &spins, &only),
            (&broken, &broken, "Neither run has a comparable row."),
        ] {
            let (compared, notes) = compare(before, after);
            let text = text(&compared, &notes);
            let words: Vec<&str> = text.split_whitespace().collect();
            assert!(words.join(" ").contains(expected), "{text}");
        }
    }
}
