// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an operation costs among few and among many.

use super::super::lines::{Axis, Plot, ROOM_UPRIGHT};
use super::super::looks::Look;
use super::super::scale::Scale;
use super::curves::{self, Curve, Shown};
use super::{Figure, distinct};
use crate::harness::rows::Row;
use crate::harness::units;

/// From "among 100 names".
pub fn among(row: &Row) -> Option<(usize, &str)> {
    let (count, what) = row.label.strip_prefix("among ")?.split_once(' ')?;
    Some((count.parse().ok()?, what))
}

pub fn figures(rows: &[&Row]) -> Vec<Figure> {
    let crowds = distinct(rows.iter().filter_map(|row| Some(among(row)?.1)));
    crowds
        .into_iter()
        .filter_map(|what| figure(what, rows))
        .collect()
}

fn figure(what: &str, rows: &[&Row]) -> Option<Figure> {
    let own: Vec<(usize, &Row)> = rows
        .iter()
        .filter_map(|row| {
            among(row)
                .filter(|(_, of)| *of == what)
                .map(|(count, _)| (count, *row))
        })
        .collect();
    let titles = distinct(own.iter().map(|(_, row)| row.title.as_str()));
    let curve = |(number, title): (usize, &str)| Curve {
        name: title.into(),
        look: Look::numbered(number),
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
    let heading = format!("A call among {what}");
    let plot = Plot {
        title: heading.clone(),
        x: Axis {
            scale: Scale::logarithmic_at(&ticks)?,
            label: format!("number of {what}"),
            format: |count| format!("{count:.0}"),
        },
        y: Axis {
            scale: Scale::logarithmic(
                curves::values(&curves, Shown::Figure).into_iter(),
                ROOM_UPRIGHT,
            )?,
            label: "time of a call".into(),
            format: units::time_tick,
        },
        level: None,
        lines: curves::lines(&curves, Shown::Figure),
    };
    let heads = counts
        .iter()
        .map(|count| format!("{count} {what}"))
        .collect();
    Some(Figure {
        table: curves::table(&heading, "call", heads, &curves, Shown::Figure),
        heading,
        hint: "Below each time its ratio to that among the fewest.".into(),
        plot: plot.svg(),
    })
}
