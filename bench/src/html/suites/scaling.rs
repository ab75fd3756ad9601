// SPDX-License-Identifier: MIT OR Apache-2.0
//! The time of an operation by the number of names or scopes.

use sluice_testkit::units;

use super::super::drawing::Axis;
use super::super::groups::groups;
use super::super::lines::{MAX_TICKS_Y, Plot};
use super::super::scale::Scale;
use super::super::series_style::SeriesStyle;
use super::curves::{self, Curve, YValue};
use super::{Figure, figures_by};
use crate::harness::rows::Row;

/// The count that varies: names in one scope, or scopes with one name each.
fn population(row: &Row) -> Option<(usize, &'static str)> {
    match (row.names?, row.scopes?) {
        (1, scopes) => Some((scopes, "scopes")),
        (names, _) => Some((names, "names")),
    }
}

pub fn figures(rows: &[&Row], all: &[Row]) -> Vec<Figure> {
    let what = |row: &Row| population(row).map(|(_, what)| what);
    figures_by(rows, what, |what, rows| figure(what?, rows, all))
}

fn figure(what: &str, rows: &[&Row], all: &[Row]) -> Option<Figure> {
    let titles = groups(rows, |row| row.title.as_str());
    let titles = titles.into_iter().enumerate();
    let curves = titles.map(|(number, (title, rows))| Curve {
        name: title.into(),
        style: SeriesStyle::numbered(number),
        points: rows
            .into_iter()
            .filter_map(|row| Some((population(row)?.0, row)))
            .collect(),
    });
    let mut curves: Vec<Curve> = curves.collect();
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
        table: curves::table(&heading, "call", heads, &curves, YValue::Figure, all),
        heading,
        hint: curves::hint(&curves, YValue::Figure),
        plot: plot.draw(),
    })
}
