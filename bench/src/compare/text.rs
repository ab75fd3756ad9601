// SPDX-License-Identifier: MIT OR Apache-2.0
//! A comparison as text.

use sluice_testkit::spread::Spread;
use sluice_testkit::table::{Align, Table};

use super::findings::{Compared, Comparison, Key};
use crate::harness::figures;
use crate::harness::samples::Change;

pub fn text(comparison: &Comparison) -> String {
    let mut parts = Vec::new();
    if !comparison.compared.is_empty() {
        parts.push(format!(
            "{}\n{}",
            table(&comparison.compared),
            summary(&comparison.compared)
        ));
    }
    let not_compared = comparison
        .not_compared
        .iter()
        .map(|one| format!("{}: {}", name(&one.key), one.reason));
    parts.extend(list("Not compared:", not_compared));
    parts.extend(list(
        "Only before:",
        comparison.only_before.iter().map(name),
    ));
    parts.extend(list("Only after:", comparison.only_after.iter().map(name)));
    match parts.is_empty() {
        true => "Neither run has a comparable row.\n".into(),
        false => parts.join("\n"),
    }
}

pub fn name(key: &Key) -> String {
    format!("{} {} {}", key.suite, key.title, key.label)
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
        table.row(line(one));
    }
    table
}

fn line(one: &Compared) -> [String; 8] {
    let figures = |spread: Spread| {
        let rounds = figures::range(&one.unit, [spread.min, spread.max]);
        [figures::figure(&one.unit, spread.median), rounds]
    };
    let [before, rounds_before] = figures(one.before);
    let [after, rounds_after] = figures(one.after);
    let noisy = if one.noisy { ", noisy" } else { "" };
    [
        format!("{} {}", one.key.suite, one.key.title),
        one.key.label.clone(),
        before,
        rounds_before,
        after,
        rounds_after,
        format!("{:+.1} %", one.percent),
        format!("{}{noisy}", one.change.name()),
    ]
}

fn summary(compared: &[Compared]) -> String {
    let count = |change| compared.iter().filter(|one| one.change == change).count();
    format!(
        "{} faster, {} slower, {} within spread.\n",
        count(Change::Faster),
        count(Change::Slower),
        count(Change::Tie)
    )
}

fn list(heading: &str, lines: impl Iterator<Item = String>) -> Option<String> {
    let lines: String = lines.map(|line| format!("  {line}\n")).collect();
    (!lines.is_empty()).then(|| format!("{heading}\n{lines}"))
}

#[cfg(test)]
pub mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::compare::compare;
    use crate::harness::rows::{Results, Row};
    use sluice_testkit::host::Host;

    pub fn row(mechanism: &str, unit: &str, median: f64, spread: [f64; 2]) -> Row {
        Row {
            suite: "rtt".into(),
            title: "1 B same-cpu".into(),
            mechanism: mechanism.into(),
            label: mechanism.into(),
            unit: Some(unit.into()),
            median: Some(median),
            spread: Some(spread),
            ..Row::default()
        }
    }

    pub fn results(rows: Vec<Row>) -> Results {
        let host = Host {
            name: "here".into(),
            kernel: "6.12".into(),
            cpu: "a processor".into(),
            cpus: 2,
            accelerator: "kvm".into(),
            clocksource: "tsc".into(),
            clock_ns: 20,
            waking_ns: None,
        };
        Results {
            host,
            clock_ns: 40,
            versions: BTreeMap::new(),
            rows,
            date: String::new(),
        }
    }

    #[test]
    fn a_line_has_both_medians_the_change_and_the_verdict() {
        let before = results(vec![row("pipe", "ns", 1000.0, [900.0, 1100.0])]);
        let after = results(vec![row("pipe", "ns", 1250.0, [1200.0, 1300.0])]);
        let text = text(&compare(&before, &after));
        for part in [
            "1.00 µs",
            "0.90 … 1.10 µs",
            "1.25 µs",
            "1.20 … 1.30 µs",
            "+25.0 %",
            "slower",
            "0 faster, 1 slower, 0 within spread.",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }

    #[test]
    fn rows_of_one_run_only_are_listed() {
        let before = results(vec![row("fifo", "ns", 1.0, [1.0, 1.0])]);
        let after = results(vec![row("tcp", "ns", 1.0, [1.0, 1.0])]);
        assert_eq!(
            text(&compare(&before, &after)),
            "Only before:\n  rtt 1 B same-cpu fifo\n\nOnly after:\n  rtt 1 B same-cpu tcp\n"
        );
    }

    #[test]
    fn two_empty_runs_are_reported() {
        let nothing = results(Vec::new());
        assert!(text(&compare(&nothing, &nothing)).contains("Neither run"));
    }
}
