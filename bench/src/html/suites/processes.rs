// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rate of all processes together by their number, for each operation.

use sluice_testkit::units;

use super::super::drawing::Axis;
use super::super::groups::groups;
use super::super::lines::{MAX_TICKS_Y, Plot};
use super::super::scale::Scale;
use super::super::series_style::SeriesStyles;
use super::curves::{self, Curve, YValue};
use super::{Figure, figures_by};
use crate::harness::rows::Row;

pub fn figures(rows: &[&Row], all: &[Row], styles: &SeriesStyles) -> Vec<Figure> {
    let operation = |row: &Row| row.operation.clone();
    figures_by(rows, operation, |operation, rows| {
        figure(&operation?, rows, all, styles)
    })
}

fn figure(operation: &str, rows: &[&Row], all: &[Row], styles: &SeriesStyles) -> Option<Figure> {
    let labels = groups(rows, |row| row.label.as_str()).into_iter();
    let curves = labels.filter_map(|(label, rows)| {
        let points = rows.iter().filter_map(|row| Some((row.processes?, *row)));
        Some(Curve {
            name: label.into(),
            style: styles.get(rows.first()?),
            points: points.collect(),
        })
    });
    let mut curves: Vec<Curve> = curves.collect();
    curves::sort(&mut curves);
    let counts = curves::counts(&curves);
    let values = curves::values(&curves, YValue::Figure).into_iter();
    let heading = format!("Rate of {operation} by number of processes");
    let plot = Plot {
        title: heading.clone(),
        x: Axis {
            scale: Scale::counted(*counts.last()?),
            label: "number of processes".into(),
            format: |count| format!("{count:.0}"),
        },
        y: Axis {
            scale: Scale::logarithmic(values, MAX_TICKS_Y)?,
            label: "operations per second, all processes".into(),
            format: units::per_second_tick,
        },
        level: None,
        lines: curves::lines(&curves, YValue::Figure),
    };
    let heads = counts.iter().map(|count| count.to_string()).collect();
    Some(Figure {
        table: curves::table(&heading, "mechanism", heads, &curves, YValue::Figure, all),
        heading,
        hint: format!(
            "A line that does not fall scales. {}",
            curves::hint(&curves, YValue::Figure)
        ),
        plot: plot.draw(),
    })
}
