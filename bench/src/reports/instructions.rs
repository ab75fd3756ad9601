// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of the suite `instructions`: what an operation executes in programs and in the kernel.

use sluice_testkit::spread::Spread;
use sluice_testkit::table::{Align, Table};
use sluice_testkit::units;

use crate::harness::rows::Row;
use crate::harness::waiting::Waiting;

pub const SUITE: &str = "instructions";
/// The loop whose length is known, in the place of a mechanism.
pub const CONTROL: &str = "control-loop";

const METHOD: &str = "\
Instructions per operation, counted while the guest was emulated: those of both processes, of the kernel and of interrupts.
A repeated string instruction, which copies any number of bytes, is one. A count is no time: it tells nothing of caches,
and neither do the times of an emulated machine.";

/// None if the suite was not measured.
pub fn text(rows: &[Row]) -> Option<String> {
    let counted: Vec<&Row> = rows
        .iter()
        .filter(|row| row.suite == SUITE && row.median.is_some())
        .collect();
    let operations = counted.iter().filter(|row| row.mechanism != CONTROL);
    let mut table = Table::new(&[
        ("operation", Align::Left),
        ("mechanism", Align::Left),
        ("instructions", Align::Right),
        ("its rounds", Align::Right),
        ("user", Align::Right),
        ("kernel", Align::Right),
        ("ratio", Align::Right),
        ("remarks", Align::Left),
    ]);
    let mut last = "";
    for row in operations {
        let title = if row.title == last { "" } else { &row.title };
        last = &row.title;
        table.row([title.to_string()].into_iter().chain(line(row)));
    }
    let control = counted.iter().find(|row| row.mechanism == CONTROL);
    let control = match control.and_then(|row| control_line(row)) {
        Some(line) => line,
        None if counted.is_empty() => return None,
        None => "The control FAILED: the counts of this run are wrong.".into(),
    };
    Some(format!("{METHOD}\n{control}\n\n{table}"))
}

fn line(row: &Row) -> [String; 7] {
    let median =
        |part: Option<Spread>| part.map_or_else(String::new, |one| units::count(one.median));
    let [ratio, _] = row.ratio_texts().unwrap_or_default();
    let remark = match row.waiting {
        Some(Waiting::Spin) => "spins before it sleeps",
        _ => "",
    };
    [
        row.label.clone(),
        row.median_text().unwrap_or_default(),
        row.range_text().unwrap_or_default(),
        median(row.user_instructions),
        median(row.kernel_instructions),
        ratio,
        remark.into(),
    ]
}

/// How exact the counts are, and their background.
fn control_line(control: &Row) -> Option<String> {
    let (user, kernel) = (control.user_instructions?, control.kernel_instructions?);
    Some(format!(
        "Control: a loop of two instructions was counted as {:.5} per iteration. Meanwhile the kernel executed {} per 1,000, which are \
         subtracted.",
        user.median,
        units::figures(kernel.median / user.median * 1000.0)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::rows::INSTRUCTIONS;

    fn spread(median: f64) -> Option<Spread> {
        Some(Spread {
            median,
            min: median,
            max: median,
        })
    }

    fn row(mechanism: &str, title: &str, user: f64, kernel: f64) -> Row {
        Row {
            suite: SUITE.into(),
            mechanism: mechanism.into(),
            label: mechanism.into(),
            title: title.into(),
            unit: Some(INSTRUCTIONS.into()),
            median: Some(user + kernel),
            spread: Some([user + kernel - 1.0, user + kernel + 1.0]),
            user_instructions: spread(user),
            kernel_instructions: spread(kernel),
            ..Row::default()
        }
    }

    #[test]
    fn user_and_kernel_are_apart() {
        let rows = [
            row(CONTROL, "loop", 2.000_001, 0.002),
            row("pipe", "round trip", 120.0, 5678.0),
            row("fifo", "round trip", 120.0, 6000.0),
        ];
        let text = text(&rows).unwrap();
        assert!(text.contains("counted as 2.00000 per iteration"), "{text}");
        assert!(text.contains("executed 1.00 per 1,000"), "{text}");
        let line = text.lines().find(|line| line.contains("pipe")).unwrap();
        let cells: Vec<&str> = line.split_whitespace().collect();
        let expected = "round trip pipe 5.80 k 5.80 … 5.80 k 120 5.68 k";
        assert_eq!(cells.join(" "), expected);
        assert!(
            text.lines()
                .any(|line| line.trim_start().starts_with("fifo"))
        );
    }

    #[test]
    fn without_the_suite_there_is_no_text() {
        let skipped = Row {
            suite: SUITE.into(),
            skipped: Some("not counted".into()),
            ..Row::default()
        };
        assert_eq!(text(&[skipped]), None);
    }
}
