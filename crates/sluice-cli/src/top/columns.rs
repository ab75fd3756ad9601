// SPDX-License-Identifier: MIT OR Apache-2.0
//! The columns of the table: their values, their order when sorted, and which of them fit into a terminal.

use std::cmp::Ordering;

use clap::ValueEnum;
use unicode_width::UnicodeWidthChar as _;

use super::sample::{Process, Row};
use crate::channels::{self, Counts};

/// sluice-top(1) describes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Column {
    Kind,
    Name,
    Scope,
    User,
    Readers,
    Writers,
    Messages,
    Bytes,
    Backlog,
    Use,
    Lag,
    Lost,
    LostRate,
    Waiting,
    Processes,
}

/// The order in which columns are left out where the terminal is too narrow for all; sluice-top(1) has it.
const LEFT_OUT: [Column; 11] = [
    Column::LostRate,
    Column::User,
    Column::Processes,
    Column::Backlog,
    Column::Waiting,
    Column::Use,
    Column::Scope,
    Column::Readers,
    Column::Writers,
    Column::Lag,
    Column::Lost,
];

/// They get what is left of the width, in this order.
const WIDE: [Column; 3] = [Column::Name, Column::Scope, Column::Processes];

/// A column and its width in cells of the terminal.
pub type Layout = Vec<(Column, usize)>;

enum Value {
    Text(String),
    /// A number in units of 1000 or of 1024; none is shown as a dash.
    Number(Option<f64>, f64),
}

impl Column {
    const fn heading(self) -> &'static str {
        match self {
            Self::Kind => "KIND",
            Self::Name => "NAME",
            Self::Scope => "SCOPE",
            Self::User => "USER",
            Self::Readers => "RD",
            Self::Writers => "WR",
            Self::Messages => "MSG/S",
            Self::Bytes => "BYTES/S",
            Self::Backlog => "BACKLOG",
            Self::Use => "USE%",
            Self::Lag => "LAG",
            Self::Lost => "LOST",
            Self::LostRate => "LOST/S",
            Self::Waiting => "WAIT",
            Self::Processes => "PROCESSES",
        }
    }

    /// A number never has more than five characters.
    const fn least_width(self) -> usize {
        match self {
            Self::Kind | Self::Readers | Self::Writers | Self::Use | Self::Waiting => 4,
            Self::Messages | Self::Lag | Self::Lost => 5,
            Self::LostRate => 6,
            Self::Bytes | Self::Backlog => 7,
            Self::User => 8,
            Self::Name | Self::Scope => 12,
            Self::Processes => 14,
        }
    }

    fn value(self, row: &Row) -> Value {
        let count = |number: u64| Value::Number(Some(number as f64), 1000.0);
        let counted = |number: Option<u64>| Value::Number(number.map(|n| n as f64), 1000.0);
        match self {
            Self::Kind => Value::Text(row.info.kind.to_string()),
            Self::Name => Value::Text(row.info.name.to_string()),
            Self::Scope => Value::Text(row.place.path.clone()),
            Self::User => Value::Text(row.user.clone()),
            Self::Readers => count(row.info.readers.into()),
            Self::Writers => count(row.info.writers.into()),
            Self::Messages => Value::Number(row.rates.messages, 1000.0),
            Self::Bytes => Value::Number(row.rates.bytes, 1024.0),
            Self::Backlog => Value::Number(Some(row.info.bytes as f64), 1024.0),
            Self::Use => count(row.use_percent().round() as u64),
            Self::Lag => counted(channels::lag(&row.info)),
            Self::Lost => counted(Counts::of(&row.info).lost),
            Self::LostRate => Value::Number(row.rates.lost, 1000.0),
            Self::Waiting => count(row.info.waiting.into()),
            Self::Processes => Value::Text(processes(&row.processes)),
        }
    }

    fn text(self, row: &Row) -> String {
        match self.value(row) {
            Value::Text(text) => text,
            Value::Number(Some(number), unit) => scaled(number, unit),
            Value::Number(None, _) => "-".to_owned(),
        }
    }

    /// Numbers begin with the greatest, texts with the first.
    fn compare(self, a: &Row, b: &Row) -> Ordering {
        match (self.value(a), self.value(b)) {
            (Value::Number(a, _), Value::Number(b, _)) => {
                b.unwrap_or(-1.0).total_cmp(&a.unwrap_or(-1.0))
            }
            (Value::Text(a), Value::Text(b)) => a.cmp(&b),
            _ => Ordering::Equal,
        }
    }

    const fn is_text(self) -> bool {
        matches!(
            self,
            Self::Kind | Self::Name | Self::Scope | Self::User | Self::Processes
        )
    }

    fn pad(self, text: &str, width: usize) -> String {
        let text = match self {
            // Its end tells more.
            Self::Scope => fit_end(text, width),
            _ => fit(text, width),
        };
        let space = " ".repeat(width.saturating_sub(cells(&text)));
        match self.is_text() {
            true => text + &space,
            false => space + &text,
        }
    }
}

pub fn processes(processes: &[Process]) -> String {
    let text = |process: &Process| {
        // A process chooses its name, which must not look like two processes.
        let command = process.command.replace(char::is_whitespace, "_");
        match process.access.as_str() {
            "" => format!("{command}/{}", process.pid),
            access => format!("{command}/{}:{access}", process.pid),
        }
    };
    processes.iter().map(text).collect::<Vec<_>>().join(" ")
}

/// At most five characters.
pub fn scaled(number: f64, unit: f64) -> String {
    const SUFFIXES: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];
    let mut number = number;
    let mut suffixes = SUFFIXES.iter();
    let mut suffix = suffixes.next();
    while number.round() >= unit {
        let Some(next) = suffixes.next() else { break };
        number /= unit;
        suffix = Some(next);
    }
    let suffix = suffix.unwrap_or(&"");
    match number < 9.95 && number.fract() >= 0.05 {
        true => format!("{number:.1}{suffix}"),
        false => format!("{number:.0}{suffix}"),
    }
}

/// The width of printable text in cells of a terminal.
pub fn cells(text: &str) -> usize {
    text.chars().map(|letter| letter.width().unwrap_or(0)).sum()
}

/// The beginning of the text that fits, and a mark if there is more.
pub fn fit(text: &str, width: usize) -> String {
    match cells(text) <= width {
        true => text.to_owned(),
        false => prefix(text.chars(), width).chain(mark(width)).collect(),
    }
}

fn fit_end(text: &str, width: usize) -> String {
    if cells(text) <= width {
        return text.to_owned();
    }
    let reversed: Vec<_> = prefix(text.chars().rev(), width).collect();
    mark(width)
        .into_iter()
        .chain(reversed.into_iter().rev())
        .collect()
}

fn mark(width: usize) -> Option<char> {
    (width > 0).then_some('…')
}

/// The letters that leave a cell for the mark.
fn prefix(letters: impl Iterator<Item = char>, width: usize) -> impl Iterator<Item = char> {
    let mut used = 1;
    letters.take_while(move |letter| {
        used += letter.width().unwrap_or(0);
        used <= width
    })
}

/// The columns for a terminal of this width; without a width all columns, as wide as their values.
pub fn layout(rows: &[&Row], width: Option<usize>) -> Layout {
    let all = Column::value_variants().iter();
    let mut layout: Layout = all.map(|&column| (column, column.least_width())).collect();
    let total = |layout: &Layout| layout.iter().map(|(_, width)| width + 1).sum::<usize>() - 1;
    if let Some(width) = width {
        for column in LEFT_OUT {
            if total(&layout) > width {
                layout.retain(|(other, _)| *other != column);
            }
        }
    }
    let mut rest = width.map_or(usize::MAX, |width| width.saturating_sub(total(&layout)));
    for column in Column::value_variants() {
        let may_grow = width.is_none() || WIDE.contains(column);
        let Some((_, width)) = layout
            .iter_mut()
            .find(|(other, _)| other == column && may_grow)
        else {
            continue;
        };
        let widest = rows.iter().map(|row| cells(&column.text(row))).max();
        let more = widest.unwrap_or(0).saturating_sub(*width).min(rest);
        *width += more;
        rest -= more;
    }
    layout
}

pub fn heading(layout: &Layout) -> String {
    let text = |(column, width): &(Column, usize)| column.pad(column.heading(), *width);
    join(layout.iter().map(text))
}

pub fn line(layout: &Layout, row: &Row) -> String {
    let cells = layout
        .iter()
        .map(|(column, width)| column.pad(&column.text(row), *width));
    join(cells)
}

fn join(cells: impl Iterator<Item = String>) -> String {
    cells.collect::<Vec<_>>().join(" ").trim_end().to_owned()
}

/// The rows whose texts contain the filter, in whatever case, sorted by a column.
pub fn arrange<'a>(rows: &'a [Row], filter: &str, sort: Column, reverse: bool) -> Vec<&'a Row> {
    let filter = filter.to_lowercase();
    let matches = |row: &&Row| {
        let columns = Column::value_variants().iter();
        let mut texts = columns.filter(|column| column.is_text());
        texts.any(|column| column.text(row).to_lowercase().contains(&filter))
    };
    let mut found: Vec<_> = rows.iter().filter(matches).collect();
    // Where they are equal, their order stays that of the list.
    found.sort_by(|a, b| match reverse {
        true => sort.compare(b, a),
        false => sort.compare(a, b),
    });
    found
}

#[cfg(test)]
mod tests {
    use sluice_abi as abi;

    use super::super::sample::tests::{info, row};
    use super::*;

    fn rows() -> Vec<Row> {
        let mut prices = row(info(abi::KIND_BUS, "prices"), "/sys/fs/cgroup/a");
        prices.rates.messages = Some(1234.0);
        prices.rates.lost = Some(0.0);
        prices.info.bytes = 32768;
        prices.processes = vec![Process {
            pid: 10,
            command: "publisher".to_owned(),
            access: "w".to_owned(),
        }];
        let mut log = row(info(abi::KIND_PIPE, "Log"), "/sys/fs/cgroup/b/c");
        log.rates.bytes = Some(2048.0);
        let mut jobs = row(info(abi::KIND_MAP, "jobs"), "/sys/fs/cgroup/a");
        jobs.rates.messages = Some(3.0);
        vec![prices, log, jobs]
    }

    fn names(rows: &[&Row]) -> String {
        let names = rows.iter().map(|row| row.info.name.to_string());
        names.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn rows_are_sorted_by_any_column() {
        let rows = rows();
        let sorted = |column, reverse| names(&arrange(&rows, "", column, reverse));
        assert_eq!(sorted(Column::Messages, false), "prices jobs Log");
        assert_eq!(sorted(Column::Messages, true), "Log jobs prices");
        assert_eq!(sorted(Column::Bytes, false), "Log prices jobs");
        assert_eq!(sorted(Column::Scope, false), "prices jobs Log");
        assert_eq!(sorted(Column::Kind, false), "prices jobs Log");
        for column in Column::value_variants() {
            assert_eq!(arrange(&rows, "", *column, false).len(), 3);
        }
    }

    #[test]
    fn a_filter_is_part_of_a_text_in_any_case() {
        let rows = rows();
        let filtered = |filter| names(&arrange(&rows, filter, Column::Name, false));
        assert_eq!(filtered("log"), "Log");
        assert_eq!(filtered("cgroup/A"), "jobs prices");
        assert_eq!(filtered("publisher/10"), "prices");
        assert_eq!(filtered("map"), "jobs");
        assert_eq!(filtered("nothing"), "");
    }

    #[test]
    fn a_name_does_not_look_like_two_processes() {
        let process = |pid, command: &str| Process {
            pid,
            command: command.to_owned(),
            access: "w".to_owned(),
        };
        let listed = [process(7, "a/1:w b\u{3000}c"), process(8, "d")];
        assert_eq!(processes(&listed), "a/1:w_b_c/7:w d/8:w");
    }

    #[test]
    fn columns_are_left_out_in_the_documented_order() {
        let rows = rows();
        let rows = arrange(&rows, "", Column::Name, false);
        let headings = |width| heading(&layout(&rows, Some(width)));
        let fewer: Vec<_> = (20..=120)
            .rev()
            .map(|width| layout(&rows, Some(width)).len())
            .collect();
        assert!(fewer.windows(2).all(|pair| pair[0] >= pair[1]), "{fewer:?}");
        assert_eq!(fewer[0], Column::value_variants().len());
        assert_eq!(
            headings(80)
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" "),
            "KIND NAME SCOPE RD WR MSG/S BYTES/S USE% LAG LOST WAIT"
        );
        assert_eq!(
            headings(40)
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" "),
            "KIND NAME MSG/S BYTES/S LOST"
        );
    }

    #[test]
    fn escapes_and_wide_letters_keep_the_alignment() {
        let mut random = fastrand::Rng::with_seed(20261129);
        let letters: Vec<char> = "aZ09\\\n\t\u{1b}\u{202e}é中文字漢🦀\u{301}e\u{7f}"
            .chars()
            .collect();
        let name = |random: &mut fastrand::Rng| {
            let name: String = (0..random.usize(1..16))
                .map(|_| *random.choice(&letters).unwrap())
                .collect();
            let mut bytes = name.into_bytes();
            bytes.truncate(63);
            bytes
        };
        for _ in 0..300 {
            let all: Vec<_> = (0..5)
                .map(|_| {
                    row(
                        info(abi::KIND_BUS, name(&mut random)),
                        "/sys/fs/cgroup/中文/字",
                    )
                })
                .collect();
            let rows: Vec<_> = all.iter().collect();
            for width in [None, Some(random.usize(31..160))] {
                let layout = layout(&rows, width);
                let padded = |row: &Row| {
                    let cells = layout
                        .iter()
                        .map(|(column, width)| column.pad(&column.text(row), *width));
                    cells.collect::<Vec<_>>().join(" ")
                };
                let expected = layout.iter().map(|(_, width)| width + 1).sum::<usize>() - 1;
                for row in &rows {
                    let line = padded(row);
                    assert_eq!(cells(&line), expected, "{line:?}");
                    assert!(!line.contains(char::is_control), "{line:?}");
                    assert!(width.is_none_or(|width| expected <= width), "{line:?}");
                }
            }
        }
    }

    #[test]
    fn numbers_have_five_characters() {
        for (number, unit, text) in [
            (0.0, 1000.0, "0"),
            (0.04, 1000.0, "0"),
            (0.5, 1000.0, "0.5"),
            (999.4, 1000.0, "999"),
            (999.6, 1000.0, "1.0K"),
            (1234.0, 1000.0, "1.2K"),
            (12345.0, 1000.0, "12K"),
            (1023.0, 1024.0, "1023"),
            (1024.0, 1024.0, "1K"),
            (1.5 * 1048576.0, 1024.0, "1.5M"),
            (u64::MAX as f64, 1024.0, "16E"),
            (u64::MAX as f64, 1000.0, "18E"),
        ] {
            assert_eq!(scaled(number, unit), text, "{number}");
        }
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..1000 {
            let number = (random.u64(..) >> random.u32(..64)) as f64 / 10.0;
            assert!(scaled(number, 1024.0).len() <= 5, "{number}");
        }
    }

    #[test]
    fn text_is_cut_at_a_letter() {
        assert_eq!(fit("prices", 6), "prices");
        assert_eq!(fit("prices", 4), "pri…");
        assert_eq!(fit("中文字", 4), "中…");
        assert_eq!(fit("ab", 0), "");
        assert_eq!(fit_end("/a/b/service", 8), "…service");
    }
}
