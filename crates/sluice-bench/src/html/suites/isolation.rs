// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rate of a pair beside none, one, … others, and what of its rate alone is left.

use super::super::lines::{Axis, Plot, ROOM_UPRIGHT};
use super::super::looks::{self, Looks};
use super::super::scale::Scale;
use super::curves::{self, Curve, Shown};
use super::{Figure, distinct};
use crate::harness::rows::Row;
use crate::harness::units;

#[derive(Clone, Debug, PartialEq)]
pub struct Company {
    pub pairs: usize,
    /// What the other pairs do; of a pair that is alone nothing.
    pub kind: Option<String>,
}

/// From "alone" and "beside 7 stalled".
pub fn company(row: &Row) -> Option<Company> {
    if row.label == "alone" {
        return Some(Company {
            pairs: 0,
            kind: None,
        });
    }
    let (pairs, kind) = row.label.strip_prefix("beside ")?.split_once(' ')?;
    Some(Company {
        pairs: pairs.parse().ok()?,
        kind: Some(kind.into()),
    })
}

pub fn figures(rows: &[&Row], looks: &Looks) -> Vec<Figure> {
    let kind = |row: &&Row| company(row)?.kind;
    let conditions = distinct(
        rows.iter()
            .filter_map(|row| Some((row.placement, kind(row)?))),
    );
    conditions
        .into_iter()
        .flat_map(|(placement, kind)| {
            let fits = |row: &&Row| {
                row.placement == placement
                    && company(row)
                        .is_some_and(|company| company.kind.is_none_or(|own| own == kind))
            };
            let rows: Vec<&Row> = rows.iter().copied().filter(fits).collect();
            let place = placement.map_or("", |placement| placement.name());
            pair_of_figures(&kind, place, &rows, looks)
        })
        .collect()
}

fn pair_of_figures(kind: &str, place: &str, rows: &[&Row], looks: &Looks) -> Vec<Figure> {
    let titles = distinct(rows.iter().map(|row| row.title.as_str()));
    let mut curves: Vec<Curve> = titles
        .into_iter()
        .filter_map(|title| curve(title, rows, looks))
        .collect();
    curves::sort(&mut curves);
    [Shown::Ratio, Shown::Figure]
        .into_iter()
        .filter_map(|shown| figure(kind, place, &curves, shown))
        .collect()
}

fn curve<'a>(title: &str, rows: &[&'a Row], looks: &Looks) -> Option<Curve<'a>> {
    let own = rows.iter().filter(|row| row.title == title);
    let mut points: Vec<(usize, &Row)> = own
        .filter_map(|row| Some((company(row)?.pairs, *row)))
        .collect();
    points.sort_by_key(|(pairs, _)| *pairs);
    let (_, first) = points.first()?;
    Some(Curve {
        name: looks::name(first),
        look: looks.get(first),
        points,
    })
}

fn figure(kind: &str, place: &str, curves: &[Curve], shown: Shown) -> Option<Figure> {
    let counts = curves::counts(curves);
    let values = curves::values(curves, shown).into_iter();
    let (heading, y) = match shown {
        Shown::Ratio => (
            format!("What is left of the rate beside {kind} pairs, {place}"),
            Axis {
                scale: Scale::from_zero(values)?,
                label: "rate, as a multiple of the rate alone".into(),
                format: units::figures_short,
            },
        ),
        Shown::Figure => (
            format!("The rate beside {kind} pairs, {place}"),
            Axis {
                scale: Scale::logarithmic(values, ROOM_UPRIGHT)?,
                label: "bytes each second".into(),
                format: units::rate_tick,
            },
        ),
    };
    let plot = Plot {
        title: heading.clone(),
        x: Axis {
            scale: Scale::counted(*counts.last()?),
            label: format!("{kind} pairs beside it"),
            format: |pairs| format!("{pairs:.0}"),
        },
        y,
        level: (shown == Shown::Ratio).then_some(1.0),
        lines: curves::lines(curves, shown),
    };
    let heads = counts.iter().map(|&pairs| match pairs {
        0 => "alone".to_string(),
        _ => format!("{pairs} {kind}"),
    });
    Some(Figure {
        table: curves::table(&heading, "mechanism", heads.collect(), curves, shown),
        heading,
        hint: match shown {
            Shown::Ratio => {
                "1 is the rate alone; in the table the range of the rounds below each ratio.".into()
            }
            Shown::Figure => "Below each rate its ratio to the rate alone.".into(),
        },
        plot: plot.svg(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_tell_the_company() {
        let of = |label: &str| {
            company(&Row {
                label: label.into(),
                ..Row::default()
            })
        };
        assert_eq!(
            of("alone"),
            Some(Company {
                pairs: 0,
                kind: None
            })
        );
        let stalled = Company {
            pairs: 7,
            kind: Some("stalled".into()),
        };
        assert_eq!(of("beside 7 stalled"), Some(stalled));
        assert_eq!(of("pipe"), None);
    }
}
