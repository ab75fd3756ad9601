// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rate by message size, for each placement.

use sluice_testkit::units;

use super::super::lines::{Axis, MAX_TICKS_Y, Plot};
use super::super::scale::Scale;
use super::super::series_style::SeriesStyles;
use super::curves::{self, Curve, YValue};
use super::{Figure, distinct};
use crate::harness::rows::Row;

pub fn figures(rows: &[&Row], styles: &SeriesStyles) -> Vec<Figure> {
    distinct(rows.iter().map(|row| row.placement))
        .into_iter()
        .filter_map(|placement| {
            let rows: Vec<&Row> = rows
                .iter()
                .copied()
                .filter(|row| row.placement == placement)
                .collect();
            let place = placement.map_or("", |placement| placement.name());
            by_size(
                format!("Throughput by message size, {place}"),
                &rows,
                styles,
            )
        })
        .collect()
}

pub fn by_size(heading: String, rows: &[&Row], styles: &SeriesStyles) -> Option<Figure> {
    let labels = distinct(rows.iter().map(|row| row.label.as_str()));
    let mut curves: Vec<Curve> = labels
        .into_iter()
        .filter_map(|label| curve(label, rows, styles))
        .collect();
    curves::sort(&mut curves);
    let counts = curves::counts(&curves);
    let ticks: Vec<f64> = counts.iter().map(|&size| size as f64).collect();
    let plot = Plot {
        title: heading.clone(),
        x: Axis {
            scale: Scale::logarithmic_at(&ticks)?,
            label: "message size".into(),
            format: |size| units::size(size as usize),
        },
        y: Axis {
            scale: Scale::logarithmic(
                curves::values(&curves, YValue::Figure).into_iter(),
                MAX_TICKS_Y,
            )?,
            label: "bytes per second".into(),
            format: units::rate_tick,
        },
        level: None,
        lines: curves::lines(&curves, YValue::Figure),
    };
    let heads = counts.iter().map(|&size| units::size(size)).collect();
    Some(Figure {
        table: curves::table(&heading, "mechanism", heads, &curves, YValue::Figure),
        heading,
        hint: "Below each rate: its ratio to pipe.".into(),
        plot: plot.svg(),
    })
}

fn curve<'a>(label: &str, rows: &[&'a Row], styles: &SeriesStyles) -> Option<Curve<'a>> {
    let own = rows.iter().filter(|row| row.label == label);
    let mut points: Vec<(usize, &Row)> = own.filter_map(|row| Some((row.size?, *row))).collect();
    points.sort_by_key(|(size, _)| *size);
    Some(Curve {
        name: label.into(),
        style: styles.get(points.first()?.1),
        points,
    })
}
