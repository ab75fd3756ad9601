// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rate against the size of messages, for each placement.

use super::super::lines::{Axis, Plot, ROOM_UPRIGHT};
use super::super::looks::Looks;
use super::super::scale::Scale;
use super::curves::{self, Curve, Shown};
use super::{Figure, distinct};
use crate::harness::rows::Row;
use crate::harness::units;

pub fn figures(rows: &[&Row], looks: &Looks) -> Vec<Figure> {
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
                format!("Throughput by size of message, {place}"),
                &rows,
                looks,
            )
        })
        .collect()
}

pub fn by_size(heading: String, rows: &[&Row], looks: &Looks) -> Option<Figure> {
    let labels = distinct(rows.iter().map(|row| row.label.as_str()));
    let mut curves: Vec<Curve> = labels
        .into_iter()
        .filter_map(|label| curve(label, rows, looks))
        .collect();
    curves::sort(&mut curves);
    let counts = curves::counts(&curves);
    let ticks: Vec<f64> = counts.iter().map(|&size| size as f64).collect();
    let plot = Plot {
        title: heading.clone(),
        x: Axis {
            scale: Scale::logarithmic_at(&ticks)?,
            label: "size of a message".into(),
            format: |size| units::size(size as usize),
        },
        y: Axis {
            scale: Scale::logarithmic(
                curves::values(&curves, Shown::Figure).into_iter(),
                ROOM_UPRIGHT,
            )?,
            label: "bytes each second".into(),
            format: units::rate_tick,
        },
        level: None,
        lines: curves::lines(&curves, Shown::Figure),
    };
    let heads = counts.iter().map(|&size| units::size(size)).collect();
    Some(Figure {
        table: curves::table(&heading, "mechanism", heads, &curves, Shown::Figure),
        heading,
        hint: "Below each rate its ratio to pipe.".into(),
        plot: plot.svg(),
    })
}

fn curve<'a>(label: &str, rows: &[&'a Row], looks: &Looks) -> Option<Curve<'a>> {
    let own = rows.iter().filter(|row| row.label == label);
    let mut points: Vec<(usize, &Row)> = own.filter_map(|row| Some((row.size?, *row))).collect();
    points.sort_by_key(|(size, _)| *size);
    Some(Curve {
        name: label.into(),
        look: looks.get(points.first()?.1),
        points,
    })
}
