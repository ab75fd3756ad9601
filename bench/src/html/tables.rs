// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables. Cells have several lines, so that a table has few columns and fits into the page.

use serde::Serialize;
use sluice_testkit::spread::Spread;
use sluice_testkit::units;

use super::notes::{self, Badge};
use super::reference;
use super::series_style::{LineSample, SeriesRole, SeriesStyle, SeriesStyles};
use crate::harness::rows::Row;
use crate::harness::samples::Summary;

#[derive(Default, Serialize)]
pub struct Table {
    pub caption: String,
    /// The first column names the rows; a last column with an empty title is for notes.
    pub heads: Vec<Head>,
    pub lines: Vec<Line>,
    /// It needs the whole width of the page.
    pub wide: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Head {
    pub text: String,
    /// The contents of the other lines of the cells.
    pub small: String,
}

impl From<&str> for Head {
    fn from(text: &str) -> Self {
        text.to_string().into()
    }
}

impl From<String> for Head {
    fn from(text: String) -> Self {
        Self {
            text,
            ..Self::default()
        }
    }
}

impl From<[&str; 2]> for Head {
    fn from(lines: [&str; 2]) -> Self {
        let [text, small] = lines.map(String::from);
        Self { text, small }
    }
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
    /// Further lines.
    pub small: Vec<String>,
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

    pub fn with_small(mut self, small: impl IntoIterator<Item = String>) -> Self {
        self.small.extend(small);
        self
    }

    fn is_empty(&self) -> bool {
        self.text.is_empty() && self.small.is_empty() && self.badges.is_empty()
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

pub fn heads<const N: usize>(heads: [[&str; 2]; N]) -> Vec<Head> {
    heads.map(Head::from).to_vec()
}

/// A column of a table of rows.
pub struct Column<'a> {
    head: Head,
    cell: Box<dyn Fn(&Row) -> Cell + 'a>,
}

impl<'a> Column<'a> {
    pub fn new(head: impl Into<Head>, cell: impl Fn(&Row) -> Cell + 'a) -> Self {
        Self {
            head: head.into(),
            cell: Box::new(cell),
        }
    }

    pub fn notes(all: &'a [Row]) -> Self {
        Self::new("", |row| Cell::notes(notes::notes(row, all)))
    }
}

/// A row with its name, in the style and with the number of its series.
pub struct Entry<'a> {
    pub row: &'a Row,
    pub name: Cell,
    pub series: Option<usize>,
    pub role: SeriesRole,
}

impl<'a> Entry<'a> {
    pub fn new(series: usize, row: &'a Row, style: SeriesStyle) -> Self {
        Self {
            row,
            name: Cell::entry(style, &row.label).with_small(calibration_reason(row)),
            series: Some(series),
            role: style.role,
        }
    }
}

/// Why a rival is slower here than in its own benchmark, or not compared with it.
pub fn calibration_reason(row: &Row) -> Option<String> {
    let reason = row.calibration.as_ref()?.reason.as_ref()?;
    Some(format!("calibration: {reason}"))
}

/// The columns without any content are left out.
pub fn table(caption: String, name: Head, entries: Vec<Entry>, columns: Vec<Column>) -> Table {
    let has_content = |column: &Column| {
        let mut cells = entries.iter().map(|one| (column.cell)(one.row));
        cells.any(|cell| !cell.is_empty())
    };
    let columns: Vec<Column> = columns.into_iter().filter(has_content).collect();
    let line = |entry: Entry| Line {
        series: entry.series,
        role: entry.role,
        cells: [entry.name]
            .into_iter()
            .chain(columns.iter().map(|column| (column.cell)(entry.row)))
            .collect(),
    };
    Table {
        caption,
        lines: entries.into_iter().map(line).collect(),
        heads: [name]
            .into_iter()
            .chain(columns.iter().map(|column| column.head.clone()))
            .collect(),
        wide: false,
    }
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

pub fn median_cell(row: &Row) -> Cell {
    Cell::from(row.median_text()).with_small(row.range_text())
}

pub fn ratio_cell(row: &Row) -> Cell {
    let texts = row.ratio_texts();
    texts.map_or_else(Cell::default, |[ratio, range]| {
        Cell::from(ratio).with_small([range])
    })
}

/// The heading of the ratios, which names the reference.
pub fn ratio_head<'a>(rows: impl Iterator<Item = &'a Row>) -> Head {
    Head {
        text: format!("ratio to {}", reference::name(rows)),
        small: "its rounds".into(),
    }
}

/// The number of rounds that were kept, of all.
pub fn kept_rounds(row: &Row) -> Option<String> {
    let kept = row.rounds?;
    Some(match row.dropped_rounds {
        Some(dropped) if dropped > 0 => format!("{kept} of {}", kept + dropped),
        _ => kept.to_string(),
    })
}

/// The rounds that were kept, and their class.
pub fn rounds_cell(row: &Row) -> Cell {
    let class = row.probe_class.map(|class| class.name().to_string());
    Cell::from(kept_rounds(row)).with_small(class)
}

/// The speed relative to the own benchmark of a rival.
pub fn calibration_cell(row: &Row) -> Cell {
    let Some(calibration) = &row.calibration else {
        return Cell::default();
    };
    let range = units::ratio_range(calibration.min, calibration.max);
    Cell::from(units::ratio(calibration.median)).with_small([range])
}

fn time(ns: u64) -> String {
    units::nanoseconds(ns as f64)
}

/// The instructions of programs and of the kernel.
fn instructions_cell(row: &Row) -> Cell {
    let count = |part: Option<Spread>| part.map(|part| units::count(part.median));
    Cell::from(count(row.user_instructions)).with_small(count(row.kernel_instructions))
}

/// Two percentiles of the samples.
fn times(row: &Row, of: impl Fn(&Summary) -> [Option<u64>; 2]) -> Cell {
    let [one, other] = row.distribution.as_ref().map(of).unwrap_or_default();
    Cell::from(one.map(time)).with_small(other.map(time))
}

/// The number of columns of counts for which there is room beside a plot.
pub const MAX_COLUMNS_BESIDE_PLOT: usize = 5;

/// The rows of one set of conditions, with the styles and series numbers of the plot.
pub fn latencies(caption: String, entries: &[(usize, &Row, SeriesStyle)], all: &[Row]) -> Table {
    let rows = entries.iter().map(|(_, row, _)| *row);
    let named = entries
        .iter()
        .map(|&(series, row, style)| Entry::new(series, row, style))
        .collect();
    let columns = vec![
        Column::new(["median", "its rounds"], median_cell),
        Column::new(["instructions: user", "kernel"], instructions_cell),
        Column::new(["p99", "p90"], |row| times(row, |one| [one.p99, one.p90])),
        Column::new("CPU per message", |row| {
            row.cpu_ns_per_msg.map(units::nanoseconds).into()
        }),
        Column::new(ratio_head(rows), ratio_cell),
        Column::new(["rounds", "class"], rounds_cell),
        Column::new(["calibration", "its rounds"], calibration_cell),
        Column::notes(all),
    ];
    table(caption, "mechanism".into(), named, columns)
}

/// All fields of these rows.
pub fn everything(rows: &[&Row], all: &[Row], styles: &SeriesStyles) -> Table {
    let named = rows
        .iter()
        .map(|&row| Entry {
            row,
            name: Cell::from(row.label.clone())
                .with_small([row.title.clone()])
                .with_small(calibration_reason(row)),
            series: None,
            role: styles.get(row).role,
        })
        .collect();
    let columns = vec![
        Column::new(["median", "its rounds"], median_cell),
        Column::new(["instructions: user", "kernel"], instructions_cell),
        Column::new(["ratio", "its rounds, reference"], |row| {
            let to = row.ratio.as_ref().map(|ratio| format!("to {}", ratio.to));
            ratio_cell(row).with_small(to)
        }),
        Column::new(["rounds", "class"], rounds_cell),
        Column::new("samples", |row| {
            row.distribution.map(|one| one.n.to_string()).into()
        }),
        Column::new(["min", "max"], |row| {
            times(row, |one| [Some(one.min), Some(one.max)])
        }),
        Column::new(["p50", "p90"], |row| {
            times(row, |one| [Some(one.p50), one.p90])
        }),
        Column::new(["p99", "p99.9"], |row| {
            times(row, |one| [one.p99, one.p999])
        }),
        Column::new("p99.99", |row| {
            row.distribution.and_then(|one| one.p9999).map(time).into()
        }),
        Column::new(["messages", "CPU per message"], |row| {
            let cpu = row.cpu_ns_per_msg.map(units::nanoseconds);
            Cell::from(row.msgs_per_s.map(units::per_second)).with_small(cpu)
        }),
        Column::new(["calibration", "its rounds"], calibration_cell),
        Column::notes(all),
    ];
    let name = Head::from(["mechanism", "conditions"]);
    table(String::new(), name, named, columns)
}
