// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ours against pipe(2), under all conditions in one plot.

use super::intervals::{Group, Interval, Plot};
use super::lines::{Axis, ROOM_ACROSS};
use super::looks::{self, Looks, Party};
use super::notes;
use super::scale::Scale;
use super::suites::{Figure, distinct};
use super::tables;
use super::text::escape;
use crate::harness::rows::{Ratio, Row};
use crate::harness::units;

/// A ratio turned so that more is always better.
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
        if looks::party(row) != Party::Ours || to != "pipe" {
            return None;
        }
        Some(match notes::less_is_better(row) {
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

/// None where nothing of ours was measured beside pipe(2).
pub fn figure(rows: &[Row], looks: &Looks) -> Option<Figure> {
    let gains: Vec<Gain> = rows.iter().filter_map(Gain::of).collect();
    let ends = gains.iter().flat_map(|gain| gain.range).chain([1.0]);
    let axis = Axis {
        scale: Scale::logarithmic(ends, ROOM_ACROSS)?,
        label: "times as fast as pipe(2)".into(),
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
        look: looks.get(gain.row),
        median: gain.median,
        range: gain.range,
        noisy: notes::is_noisy(gain.row),
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
        title: "How many times as fast as pipe(2) ours is".into(),
        axis,
        level: Some(1.0),
        groups: distinct(gains.iter().map(Gain::conditions))
            .into_iter()
            .map(group)
            .collect(),
    };
    let lines: Vec<tables::Line> = gains
        .iter()
        .map(|gain| line(gain, series(gain), rows, looks))
        .collect();
    let heads = ["mechanism", "conditions", "times as fast", "its rounds", ""].map(String::from);
    Some(Figure {
        heading: "Ours against pipe(2)".into(),
        hint: "Right of 1 ours is faster, left of it pipe(2) is. Of latencies this is the inverse of the ratio in the tables below, so that right is always better. The range is that of the rounds, each compared with its neighbour.".into(),
        plot: plot.svg(),
        table: tables::table("Ours against pipe(2)", &heads, &lines),
    })
}

fn line(gain: &Gain, series: usize, rows: &[Row], looks: &Looks) -> tables::Line {
    let [min, max] = gain.range;
    tables::Line {
        series: Some(series),
        party: Party::Other,
        cells: vec![
            looks::entry(looks.get(gain.row), &gain.row.label),
            escape(&gain.conditions()),
            format!("{:.2}", gain.median),
            units::ratio_range(min, max),
            notes::notes(gain.row, rows),
        ],
    }
}
