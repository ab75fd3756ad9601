// SPDX-License-Identifier: MIT OR Apache-2.0
//! Medians by a count: message size, number of neighbours, number of names. The table has one column per count.

use sluice_testkit::units;

use super::super::groups::distinct;
use super::super::lines::{Line, Mark, Point};
use super::super::notes;
use super::super::reference;
use super::super::series_style::SeriesStyle;
use super::super::tables::{self, Cell, Head, Table};
use crate::harness::rows::Row;
use crate::harness::samples::Change;

pub struct Curve<'a> {
    pub name: String,
    pub style: SeriesStyle,
    pub points: Vec<(usize, &'a Row)>,
}

/// The value of a row that is drawn: the median, or its ratio to the reference.
#[derive(Clone, Copy, PartialEq)]
pub enum YValue {
    Figure,
    Ratio,
}

impl YValue {
    /// The value, and the smallest and the largest round.
    pub fn of(self, row: &Row) -> Option<(f64, [f64; 2])> {
        match (self, &row.ratio) {
            (Self::Figure, _) => Some((row.median?, row.spread?)),
            (Self::Ratio, Some(ratio)) => Some((ratio.median, [ratio.min, ratio.max])),
            (Self::Ratio, None) => Some((1.0, [1.0, 1.0])),
        }
    }
}

pub fn counts(curves: &[Curve]) -> Vec<usize> {
    let counts = curves.iter().flat_map(|curve| &curve.points);
    let mut counts = distinct(counts.map(|(count, _)| *count));
    counts.sort_unstable();
    counts
}

/// All values that an axis must cover.
pub fn values(curves: &[Curve], y_value: YValue) -> Vec<f64> {
    let points = curves.iter().flat_map(|curve| &curve.points);
    points
        .filter_map(|(_, row)| y_value.of(row))
        .flat_map(|(value, [min, max])| [value, min, max])
        .collect()
}

pub fn lines(curves: &[Curve], y_value: YValue) -> Vec<Line> {
    let line = |(series, curve): (usize, &Curve)| Line {
        series,
        name: curve.name.clone(),
        style: curve.style,
        points: curve
            .points
            .iter()
            .filter_map(|&(count, row)| point(count, row, y_value))
            .collect(),
    };
    curves.iter().enumerate().map(line).collect()
}

fn point(count: usize, row: &Row, y_value: YValue) -> Option<Point> {
    let (value, range) = y_value.of(row)?;
    Some(Point {
        x: count as f64,
        y: value,
        range: Some(range),
        mark: Mark::of(row.is_noisy()),
    })
}

pub fn table(
    caption: &str,
    first: &str,
    heads: Vec<String>,
    curves: &[Curve],
    y_value: YValue,
    all: &[Row],
) -> Table {
    let counts = counts(curves);
    let line = |(series, curve): (usize, &Curve)| {
        let cell = |count: &usize| {
            let row = curve.points.iter().find(|(at, _)| at == count);
            row.map(|(_, row)| cell(row, y_value, all)).into()
        };
        let rows = curve.points.iter().map(|(_, row)| *row);
        let reasons = distinct(rows.filter_map(tables::calibration_reason));
        let name = Cell::entry(curve.style, &curve.name).with_small(reasons);
        tables::Line {
            series: Some(series),
            role: curve.style.role,
            cells: [name].into_iter().chain(counts.iter().map(cell)).collect(),
        }
    };
    Table {
        caption: caption.into(),
        heads: [first.to_string()]
            .into_iter()
            .chain(heads)
            .map(Head::from)
            .collect(),
        lines: curves.iter().enumerate().map(line).collect(),
        wide: counts.len() > tables::MAX_COLUMNS_BESIDE_PLOT,
    }
}

/// What the lines of the cells are.
pub fn hint(curves: &[Curve], y_value: YValue) -> String {
    let rows = || {
        let points = curves.iter().flat_map(|curve| &curve.points);
        points.map(|(_, row)| *row)
    };
    let to = reference::name(rows());
    let relative = match y_value {
        YValue::Ratio => format!("Ratio to {to}; below: its rounds"),
        YValue::Figure if rows().any(|row| row.ratio.is_some()) => {
            format!("Below each median: its rounds, × the ratio to {to}")
        }
        YValue::Figure => "Below each median: its rounds".into(),
    };
    let calibrated = rows().any(|row| row.calibration.is_some());
    let calibration = if calibrated { ", calibration" } else { "" };
    format!("{relative}, number and class of the rounds{calibration}.")
}

fn cell(row: &Row, y_value: YValue, all: &[Row]) -> Cell {
    let (main, below) = match (y_value, row.ratio_texts()) {
        (YValue::Figure, ratio) => (
            row.median_text(),
            vec![
                row.range_text(),
                ratio.map(|[ratio, _]| with_tie(ratio, row)),
            ],
        ),
        (YValue::Ratio, None) => (Some("1".into()), Vec::new()),
        (YValue::Ratio, Some([ratio, ratios])) => (Some(ratio), vec![Some(ratios)]),
    };
    let calibration = row.calibration.as_ref();
    let calibration = calibration.map(|one| format!("calibr. {}", units::ratio(one.median)));
    let further = [Some(rounds(row)), calibration];
    Cell {
        badges: [
            notes::other_class(row, all),
            notes::single_round(row),
            notes::noisy(row),
        ]
        .into_iter()
        .flatten()
        .collect(),
        ..Cell::from(main).with_small(below.into_iter().chain(further).flatten())
    }
}

fn with_tie(ratio: String, row: &Row) -> String {
    match row.change() {
        Some(Change::Tie) => format!("× {ratio}, tie"),
        _ => format!("× {ratio}"),
    }
}

/// The number of rounds, and their class.
fn rounds(row: &Row) -> String {
    let rounds = tables::kept_rounds(row).unwrap_or_default();
    match (row.probe_class, row.rounds) {
        (Some(class), _) => format!("{rounds} {}", class.name()),
        (None, Some(1)) => "1 round".into(),
        (None, _) => format!("{rounds} rounds"),
    }
}

/// Sorts by the last value, best first, so that the table has the order of the lines.
pub fn sort(curves: &mut [Curve]) {
    let last = |curve: &Curve| {
        let row = curve.points.last().map(|(_, row)| *row);
        let figure = row.and_then(|row| row.median).unwrap_or(0.0);
        match row.is_some_and(Row::less_is_better) {
            true => figure,
            false => -figure,
        }
    };
    curves.sort_by(|one, other| last(one).total_cmp(&last(other)));
}
