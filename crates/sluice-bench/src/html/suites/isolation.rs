// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rate of a pair with other pairs, absolute and relative to its rate alone.

use sluice_testkit::units;

use super::super::lines::{Axis, MAX_TICKS_Y, Plot};
use super::super::scale::Scale;
use super::super::series_style::{self, SeriesStyles};
use super::curves::{self, Curve, YValue};
use super::{Figure, distinct};
use crate::harness::rows::Row;

#[derive(Clone, Debug, PartialEq)]
pub struct Neighbours {
    pub pairs: usize,
    /// The activity of the other pairs; None for a pair alone.
    pub kind: Option<String>,
}

/// Parses "alone" and "beside 7 stalled".
pub fn neighbours(row: &Row) -> Option<Neighbours> {
    if row.label == "alone" {
        return Some(Neighbours {
            pairs: 0,
            kind: None,
        });
    }
    let (pairs, kind) = row.label.strip_prefix("beside ")?.split_once(' ')?;
    Some(Neighbours {
        pairs: pairs.parse().ok()?,
        kind: Some(kind.into()),
    })
}

pub fn figures(rows: &[&Row], styles: &SeriesStyles) -> Vec<Figure> {
    let kind = |row: &&Row| neighbours(row)?.kind;
    let conditions = distinct(
        rows.iter()
            .filter_map(|row| Some((row.placement, kind(row)?))),
    );
    conditions
        .into_iter()
        .flat_map(|(placement, kind)| {
            let fits = |row: &&Row| {
                row.placement == placement
                    && neighbours(row)
                        .is_some_and(|neighbours| neighbours.kind.is_none_or(|own| own == kind))
            };
            let rows: Vec<&Row> = rows.iter().copied().filter(fits).collect();
            let place = placement.map_or("", |placement| placement.name());
            pair_of_figures(&kind, place, &rows, styles)
        })
        .collect()
}

fn pair_of_figures(kind: &str, place: &str, rows: &[&Row], styles: &SeriesStyles) -> Vec<Figure> {
    let titles = distinct(rows.iter().map(|row| row.title.as_str()));
    let mut curves: Vec<Curve> = titles
        .into_iter()
        .filter_map(|title| curve(title, rows, styles))
        .collect();
    curves::sort(&mut curves);
    [YValue::Ratio, YValue::Figure]
        .into_iter()
        .filter_map(|y_value| figure(kind, place, &curves, y_value))
        .collect()
}

fn curve<'a>(title: &str, rows: &[&'a Row], styles: &SeriesStyles) -> Option<Curve<'a>> {
    let own = rows.iter().filter(|row| row.title == title);
    let mut points: Vec<(usize, &Row)> = own
        .filter_map(|row| Some((neighbours(row)?.pairs, *row)))
        .collect();
    points.sort_by_key(|(pairs, _)| *pairs);
    let (_, first) = points.first()?;
    Some(Curve {
        name: series_style::name(first),
        style: styles.get(first),
        points,
    })
}

fn figure(kind: &str, place: &str, curves: &[Curve], y_value: YValue) -> Option<Figure> {
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
        table: curves::table(&heading, "mechanism", heads.collect(), curves, y_value),
        heading,
        hint: match y_value {
            YValue::Ratio => "1 is the rate alone. Below each ratio: its rounds.".into(),
            YValue::Figure => "Below each rate: its ratio to the rate alone.".into(),
        },
        plot: plot.svg(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_parsed() {
        let of = |label: &str| {
            neighbours(&Row {
                label: label.into(),
                ..Row::default()
            })
        };
        assert_eq!(
            of("alone"),
            Some(Neighbours {
                pairs: 0,
                kind: None
            })
        );
        let stalled = Neighbours {
            pairs: 7,
            kind: Some("stalled".into()),
        };
        assert_eq!(of("beside 7 stalled"), Some(stalled));
        assert_eq!(of("pipe"), None);
    }
}
