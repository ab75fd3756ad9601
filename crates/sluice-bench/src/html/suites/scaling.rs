// SPDX-License-Identifier: MIT OR Apache-2.0
//! The time of an operation by the number of names or scopes.

use sluice_testkit::units;

use super::super::lines::{Axis, MAX_TICKS_Y, Plot};
use super::super::scale::Scale;
use super::super::series_style::SeriesStyle;
use super::curves::{self, Curve, YValue};
use super::{Figure, distinct};
use crate::harness::rows::Row;

/// Parses "among 100 names".
pub fn population(row: &Row) -> Option<(usize, &str)> {
    let (count, what) = row.label.strip_prefix("among ")?.split_once(' ')?;
    Some((count.parse().ok()?, what))
}

pub fn figures(rows: &[&Row]) -> Vec<Figure> {
    let kinds = distinct(rows.iter().filter_map(|row| Some(population(row)?.1)));
    kinds
        .into_iter()
        .filter_map(|what| figure(what, rows))
        .collect()
}

fn figure(what: &str, rows: &[&Row]) -> Option<Figure> {
    let own: Vec<(usize, &Row)> = rows
        .iter()
        .filter_map(|row| {
            population(row)
                .filter(|(_, of)| *of == what)
                .map(|(count, _)| (count, *row))
        })
        .collect();
    let titles = distinct(own.iter().map(|(_, row)| row.title.as_str()));
    let curve = |(number, title): (usize, &str)| Curve {
        name: title.into(),
        style: SeriesStyle::numbered(number),
        points: own
            .iter()
            .copied()
            .filter(|(_, row)| row.title == title)
            .collect(),
    };
    let mut curves: Vec<Curve> = titles.into_iter().enumerate().map(curve).collect();
    curves::sort(&mut curves);
    let counts = curves::counts(&curves);
    let ticks: Vec<f64> = counts.iter().map(|&count| count as f64).collect();
    let heading = format!("Time of a call by number of {what}");
    let plot = Plot {
        title: heading.clone(),
        x: Axis {
            scale: Scale::logarithmic_at(&ticks)?,
            label: format!("number of {what}"),
            format: |count| format!("{count:.0}"),
        },
        y: Axis {
            scale: Scale::logarithmic(
                curves::values(&curves, YValue::Figure).into_iter(),
                MAX_TICKS_Y,
            )?,
            label: "time of a call".into(),
            format: units::time_tick,
        },
        level: None,
        lines: curves::lines(&curves, YValue::Figure),
    };
    let heads = counts
        .iter()
        .map(|count| format!("{count} {what}"))
        .collect();
    Some(Figure {
        table: curves::table(&heading, "call", heads, &curves, YValue::Figure),
        heading,
        hint: "Below each time: its ratio to that of the smallest number.".into(),
        plot: plot.svg(),
    })
}
