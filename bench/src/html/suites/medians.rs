// SPDX-License-Identifier: MIT OR Apache-2.0
//! Medians and their rounds, where there are too few samples for a distribution.

use sluice_testkit::units;

use super::super::drawing::Axis;
use super::super::intervals::{Group, Interval, Plot};
use super::super::scale::Scale;
use super::super::series_style::{SeriesStyle, SeriesStyles};
use super::super::tables;
use super::{Figure, figures_by};
use crate::harness::figures::memory;
use crate::harness::rows::{BYTES, INSTRUCTIONS, Row};

pub fn figures(rows: &[&Row], all: &[Row], styles: &SeriesStyles) -> Vec<Figure> {
    let figure = |title: &str, rows: &[&Row]| figure(title, rows, all, styles);
    figures_by(rows, |row| row.title.as_str(), figure)
}

fn figure(title: &str, rows: &[&Row], all: &[Row], styles: &SeriesStyles) -> Option<Figure> {
    let rows = tables::sorted(rows);
    let entries: Vec<(usize, &Row, SeriesStyle)> = rows
        .iter()
        .enumerate()
        .map(|(series, row)| (series, *row, styles.get(row)))
        .collect();
    let ends = rows.iter().filter_map(|row| row.spread).flatten();
    let plot = Plot {
        title: title.into(),
        axis: axis(rows.first()?, ends)?,
        level: None,
        groups: entries
            .iter()
            .filter_map(|&(series, row, style)| group(series, row, style))
            .collect(),
    };
    Some(Figure {
        heading: title.into(),
        hint: "Marks: medians. Bars: from the smallest to the largest round. The axis begins at 0."
            .into(),
        plot: plot.draw(),
        table: tables::latencies(title.into(), &entries, all),
    })
}

fn axis(row: &Row, ends: impl Iterator<Item = f64>) -> Option<Axis> {
    let (label, format): (&str, fn(f64) -> String) = match row.unit.as_deref()? {
        "ns" => ("time", units::time_tick),
        "bytes/s" => ("bytes per second", units::rate_tick),
        INSTRUCTIONS => ("instructions", units::count_tick),
        BYTES => ("memory", memory),
        other => (other, units::figures_short),
    };
    Some(Axis {
        scale: Scale::from_zero(ends)?,
        label: label.into(),
        format,
    })
}

fn group(series: usize, row: &Row, style: SeriesStyle) -> Option<Group> {
    Some(Group {
        label: row.label.clone(),
        intervals: vec![Interval {
            series,
            name: row.label.clone(),
            style,
            median: row.median?,
            range: row.spread?,
            noisy: row.is_noisy(),
        }],
    })
}
