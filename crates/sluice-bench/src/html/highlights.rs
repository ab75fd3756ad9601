// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sluice relative to pipe(2), all conditions in one plot.

use sluice_testkit::units;

use super::drawing::Axis;
use super::groups::distinct;
use super::intervals::{Group, Interval, Plot};
use super::lines::MAX_TICKS_X;
use super::notes;
use super::scale::Scale;
use super::series_style::{self, SeriesRole, SeriesStyles};
use super::suites::Figure;
use super::tables::{Cell, Line, Table, heads};
use crate::harness::rows::{INSTRUCTIONS, Ratio, Row};

/// A ratio, inverted where necessary so that more is better.
struct Gain<'a> {
    row: &'a Row,
    median: f64,
    range: [f64; 2],
}

impl<'a> Gain<'a> {
    fn of(row: &'a Row) -> Option<Self> {
        let Ratio {
            to,
            median,
            min,
            max,
            ..
        } = row.ratio.as_ref()?;
        // A number of instructions is no speed.
        let counted = row.unit.as_deref() == Some(INSTRUCTIONS);
        if series_style::role(row) != SeriesRole::Sluice || to != "pipe" || counted {
            return None;
        }
        Some(match row.less_is_better() {
            true => Self {
                row,
                median: 1.0 / median,
                range: [1.0 / max, 1.0 / min],
            },
            false => Self {
                row,
                median: *median,
                range: [*min, *max],
            },
        })
    }

    fn conditions(&self) -> String {
        format!("{} {}", self.row.suite, self.row.title)
    }
}

/// None without a result of Sluice relative to pipe(2).
pub fn figure(rows: &[Row], styles: &SeriesStyles) -> Option<Figure> {
    let gains: Vec<Gain> = rows.iter().filter_map(Gain::of).collect();
    let ends = gains.iter().flat_map(|gain| gain.range).chain([1.0]);
    let axis = Axis {
        scale: Scale::logarithmic(ends, MAX_TICKS_X)?,
        label: "speed relative to pipe(2)".into(),
        format: units::figures_short,
    };
    if gains.is_empty() {
        return None;
    }
    let labels = distinct(gains.iter().map(|gain| gain.row.label.as_str()));
    let series = |gain: &Gain| {
        labels
            .iter()
            .position(|label| *label == gain.row.label)
            .unwrap_or(0)
    };
    let interval = |gain: &Gain| Interval {
        series: series(gain),
        name: format!("{}, {}", gain.row.label, gain.conditions()),
        style: styles.get(gain.row),
        median: gain.median,
        range: gain.range,
        noisy: gain.row.is_noisy(),
    };
    let group = |conditions: String| Group {
        intervals: gains
            .iter()
            .filter(|gain| gain.conditions() == conditions)
            .map(interval)
            .collect(),
        label: conditions,
    };
    let plot = Plot {
        title: "Speed of Sluice relative to pipe(2)".into(),
        axis,
        level: Some(1.0),
        groups: distinct(gains.iter().map(Gain::conditions))
            .into_iter()
            .map(group)
            .collect(),
    };
    let line = |gain: &Gain| line(gain, series(gain), rows, styles);
    Some(Figure {
        heading: "Sluice relative to pipe(2)".into(),
        hint: "Right of 1, Sluice is faster. For latencies this is the inverse of the ratio in the tables below, so that right is always better. The range is that of the ratios within each round.".into(),
        plot: plot.draw(),
        table: Table {
            caption: "Sluice relative to pipe(2)".into(),
            heads: heads(["mechanism", "conditions", "relative speed", "its rounds", ""]),
            lines: gains.iter().map(line).collect(),
        },
    })
}

fn line(gain: &Gain, series: usize, rows: &[Row], styles: &SeriesStyles) -> Line {
    let [min, max] = gain.range;
    Line {
        series: Some(series),
        role: SeriesRole::Other,
        cells: vec![
            Cell::entry(styles.get(gain.row), &gain.row.label),
            gain.conditions().into(),
            format!("{:.2}", gain.median).into(),
            units::ratio_range(min, max).into(),
            Cell::notes(notes::notes(gain.row, rows)),
        ],
    }
}
