// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables, each in a box that scrolls on a narrow screen.

use serde::Serialize;
use sluice_testkit::units;

use super::groups::distinct;
use super::notes::{self, Badge};
use super::series_style::{self, LineSample, SeriesRole, SeriesStyle};
use crate::harness::rows::Row;

#[derive(Default, Serialize)]
pub struct Table {
    pub caption: String,
    /// The first column names the rows; a last column with an empty title is for notes.
    pub heads: Vec<String>,
    pub lines: Vec<Line>,
}

#[derive(Serialize)]
pub struct Line {
    /// The number of the series in the plot, if it has one.
    pub series: Option<usize>,
    pub role: SeriesRole,
    pub cells: Vec<Cell>,
}

#[derive(Default, Serialize)]
pub struct Cell {
    pub sample: Option<LineSample>,
    pub text: String,
    /// A second line.
    pub small: Option<String>,
    pub badges: Vec<Badge>,
}

impl Cell {
    /// A name, preceded by the sample of its line.
    pub fn entry(style: SeriesStyle, name: &str) -> Self {
        Self {
            sample: Some(style.sample()),
            ..name.to_string().into()
        }
    }

    pub fn notes(badges: impl IntoIterator<Item = Badge>) -> Self {
        Self {
            badges: badges.into_iter().collect(),
            ..Self::default()
        }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self {
            text,
            ..Self::default()
        }
    }
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map(Into::into).unwrap_or_default()
    }
}

pub fn heads<const N: usize>(heads: [&str; N]) -> Vec<String> {
    heads.map(String::from).to_vec()
}

/// Sorts the best first.
pub fn sorted<'a>(rows: &[&'a Row]) -> Vec<&'a Row> {
    let mut rows = rows.to_vec();
    rows.sort_by(|one, other| {
        let (a, b) = (one.median.unwrap_or(0.0), other.median.unwrap_or(0.0));
        match one.less_is_better() {
            true => a.total_cmp(&b),
            false => b.total_cmp(&a),
        }
    });
    rows
}

/// The two cells of a ratio.
pub fn ratio_cells(row: &Row) -> [Cell; 2] {
    row.ratio_texts().unwrap_or_default().map(Cell::from)
}

fn time(ns: u64) -> String {
    units::nanoseconds(ns as f64)
}

/// The heading of the ratios, which names the reference.
fn ratio_head(rows: &[&Row]) -> String {
    let to = rows.iter().filter_map(|row| Some(&row.ratio.as_ref()?.to));
    match distinct(to)[..] {
        [to] => format!("ratio to {to}"),
        _ => "ratio".into(),
    }
}

/// The rows of one set of conditions, with the styles and series numbers of the plot.
pub fn latencies(caption: String, entries: &[(usize, &Row, SeriesStyle)], all: &[Row]) -> Table {
    let rows: Vec<&Row> = entries.iter().map(|(_, row, _)| *row).collect();
    let several_classes = distinct(rows.iter().map(|row| row.probe_class)).len() > 1;
    let line = |&(series, row, style): &(usize, &Row, SeriesStyle)| {
        let [ratio, ratios] = ratio_cells(row);
        let class = notes::class(row).filter(|_| several_classes);
        Line {
            series: Some(series),
            role: style.role,
            cells: vec![
                Cell::entry(style, &row.label),
                row.median_text().into(),
                row.range_text().into(),
                row.distribution.map(|one| time(one.p90)).into(),
                row.distribution.map(|one| time(one.p99)).into(),
                row.cpu_ns_per_msg.map(units::nanoseconds).into(),
                ratio,
                ratios,
                Cell::notes(notes::notes(row, all).into_iter().chain(class)),
            ],
        }
    };
    Table {
        caption,
        heads: heads([
            "mechanism",
            "median",
            "its rounds",
            "p90",
            "p99",
            "CPU per message",
            &ratio_head(&rows),
            "its rounds",
            "",
        ]),
        lines: entries.iter().map(line).collect(),
    }
}

/// All fields of these rows.
pub fn everything(rows: &[&Row], all: &[Row]) -> Table {
    Table {
        caption: String::new(),
        heads: heads([
            "conditions",
            "mechanism",
            "median",
            "its rounds",
            "rounds",
            "ratio",
            "its rounds",
            "to",
            "samples",
            "min",
            "p50",
            "p90",
            "p99",
            "p99.9",
            "max",
            "messages",
            "CPU per message",
            "",
        ]),
        lines: rows.iter().map(|row| full_line(row, all)).collect(),
    }
}

fn full_line(row: &Row, all: &[Row]) -> Line {
    let one = row.distribution;
    let [ratio, ratios] = ratio_cells(row);
    let notes = notes::notes(row, all).into_iter();
    Line {
        series: None,
        role: series_style::role(row),
        cells: vec![
            row.title.clone().into(),
            row.label.clone().into(),
            row.median_text().into(),
            row.range_text().into(),
            row.rounds.map(|rounds| rounds.to_string()).into(),
            ratio,
            ratios,
            row.ratio.as_ref().map(|ratio| ratio.to.clone()).into(),
            one.map(|one| one.n.to_string()).into(),
            one.map(|one| time(one.min)).into(),
            one.map(|one| time(one.p50)).into(),
            one.map(|one| time(one.p90)).into(),
            one.map(|one| time(one.p99)).into(),
            one.and_then(|one| one.p999).map(time).into(),
            one.map(|one| time(one.max)).into(),
            row.msgs_per_s.map(units::per_second).into(),
            row.cpu_ns_per_msg.map(units::nanoseconds).into(),
            Cell::notes(notes.chain(notes::class(row))),
        ],
    }
}
