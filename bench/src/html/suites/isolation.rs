// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rate of a pair with other pairs, absolute and relative to its rate alone.

use sluice_testkit::units;

use super::super::drawing::Axis;
use super::super::groups::{distinct, groups};
use super::super::lines::{MAX_TICKS_Y, Plot};
use super::super::scale::Scale;
use super::super::series_style::{self, SeriesStyles};
use super::Figure;
use super::curves::{self, Curve, YValue};
use crate::harness::rounds::Activity;
use crate::harness::rows::Row;

pub fn figures(rows: &[&Row], all: &[Row], styles: &SeriesStyles) -> Vec<Figure> {
    let activity = |row: &Row| row.neighbours?.activity;
    let conditions = rows
        .iter()
        .filter_map(|row| Some((row.placement, activity(row)?)));
    distinct(conditions)
        .into_iter()
        .flat_map(|(placement, kind)| {
            // A pair alone is the first point of each curve.
            let fits = |row: &&Row| {
                row.placement == placement && activity(row).is_none_or(|own| own == kind)
            };
            let rows: Vec<&Row> = rows.iter().copied().filter(fits).collect();
            let place = placement.map_or("", |placement| placement.name());
            pair_of_figures(kind, place, &rows, all, styles)
        })
        .collect()
}

fn pair_of_figures(
    kind: Activity,
    place: &str,
    rows: &[&Row],
    all: &[Row],
    styles: &SeriesStyles,
) -> Vec<Figure> {
    let titles = groups(rows, |row| row.title.as_str()).into_iter();
    let mut curves: Vec<Curve> = titles
        .filter_map(|(_, rows)| curve(&rows, styles))
        .collect();
    curves::sort(&mut curves);
    [YValue::Ratio, YValue::Figure]
        .into_iter()
        .filter_map(|y_value| figure(kind.name(), place, &curves, y_value, all))
        .collect()
}

fn curve<'a>(rows: &[&'a Row], styles: &SeriesStyles) -> Option<Curve<'a>> {
    let points = rows.iter();
    let mut points: Vec<(usize, &Row)> = points
        .filter_map(|row| Some((row.neighbours?.pairs, *row)))
        .collect();
    points.sort_by_key(|(pairs, _)| *pairs);
    let (_, first) = points.first()?;
    Some(Curve {
        name: series_style::name(first),
        style: styles.get(first),
        points,
    })
}

fn figure(
    kind: &str,
    place: &str,
    curves: &[Curve],
    y_value: YValue,
    all: &[Row],
) -> Option<Figure> {
    let counts = curves::counts(curves);
    let values = curves::values(curves, y_value).into_iter();
    let (heading, y) = match y_value {
        YValue::Ratio => (
            format!("Rate relative to a pair alone, {kind} neighbours, {place}"),
            Axis {
                scale: Scale::from_zero(values)?,
                label: "rate relative to a pair alone".into(),
                format: units::figures_short,
            },
        ),
        YValue::Figure => (
            format!("Rate with {kind} neighbours, {place}"),
            Axis {
                scale: Scale::logarithmic(values, MAX_TICKS_Y)?,
                label: "bytes per second".into(),
                format: units::rate_tick,
            },
        ),
    };
    let plot = Plot {
        title: heading.clone(),
        x: Axis {
            scale: Scale::counted(*counts.last()?),
            label: format!("number of {kind} neighbours"),
            format: |pairs| format!("{pairs:.0}"),
        },
        y,
        level: (y_value == YValue::Ratio).then_some(1.0),
        lines: curves::lines(curves, y_value),
    };
    let heads = counts.iter().map(|&pairs| match pairs {
        0 => "alone".to_string(),
        _ => format!("{pairs} {kind}"),
    });
    Some(Figure {
        table: curves::table(&heading, "mechanism", heads.collect(), curves, y_value, all),
        heading,
        hint: curves::hint(curves, y_value),
        plot: plot.draw(),
    })
}
