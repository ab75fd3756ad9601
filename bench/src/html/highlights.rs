// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sluice relative to the reference: the plot of the takeaways, and that of all conditions.

use sluice_testkit::units;

use super::drawing::{Axis, Drawing};
use super::groups::distinct;
use super::intervals::{Group, Interval, Plot};
use super::lines::MAX_TICKS_X;
use super::notes;
use super::reference;
use super::scale::Scale;
use super::series_style::{SeriesRole, SeriesStyles};
use super::suites::Figure;
use super::tables::{self, Cell, Line, Table, heads};
use super::takeaways::{self, Takeaway};
use crate::harness::rows::{Ratio, Row};

/// A ratio, inverted where necessary so that more is better.
struct Gain<'a> {
    row: &'a Row,
    rival: &'a Row,
    median: f64,
    range: [f64; 2],
}

impl<'a> Gain<'a> {
    fn of(row: &'a Row, rival: &'a Row) -> Option<Self> {
        let Ratio {
            median, min, max, ..
        } = row.ratio.as_ref()?;
        Some(match row.less_is_better() {
            true => Self {
                row,
                rival,
                median: 1.0 / median,
                range: [1.0 / max, 1.0 / min],
            },
            false => Self {
                row,
                rival,
                median: *median,
                range: [*min, *max],
            },
        })
    }

    fn conditions(&self) -> String {
        takeaways::conditions(self.row)
    }
}

fn gains<'a>(takeaways: &[Takeaway<'a>]) -> impl Iterator<Item = Gain<'a>> {
    let gain = |one: &Takeaway<'a>| Gain::of(one.row, one.rival);
    takeaways.iter().filter_map(gain)
}

/// The takeaways, whose sentences are the table. None without one.
pub fn first(takeaways: &[Takeaway], styles: &SeriesStyles) -> Option<Figure> {
    let gains: Vec<Gain> = gains(takeaways).collect();
    let heading = "What to take away".to_string();
    let line = |(series, one): (usize, &Takeaway)| Line {
        series: Some(series),
        role: SeriesRole::Other,
        cells: vec![
            Cell::entry(styles.get(one.row), &one.headline()).with_small([one.spread()]),
            Cell::notes(one.notes()),
        ],
    };
    Some(Figure {
        plot: plot(&heading, &gains, names(&gains), |index, _| index, styles)?,
        hint: hint(&gains),
        table: Table {
            caption: heading.clone(),
            heads: heads([["result", ""], ["", ""]]),
            lines: takeaways.iter().enumerate().map(line).collect(),
            wide: false,
        },
        heading,
    })
}

/// The first mechanism of each of the conditions. None without one.
pub fn brief(takeaways: &[Takeaway], styles: &SeriesStyles) -> Option<Drawing> {
    let mut gains: Vec<Gain> = Vec::new();
    for gain in self::gains(takeaways) {
        let is_new = |one: &Gain| one.conditions() != gain.conditions();
        if gains.iter().all(is_new) {
            gains.push(gain);
        }
    }
    plot("Sluice", &gains, names(&gains), |index, _| index, styles)
}

/// The conditions and the mechanism of each mark, with its reference where these differ.
fn names(gains: &[Gain]) -> impl Fn(&Gain) -> String {
    let has_one_reference = references(gains).len() == 1;
    move |gain| {
        let (row, rival) = (gain.row, &gain.rival.mechanism);
        match has_one_reference {
            true => format!("{}: {}", gain.conditions(), row.label),
            false => format!(
                "{}: {} vs {rival}",
                takeaways::short_conditions(row),
                row.label
            ),
        }
    }
}

/// All results of Sluice relative to a rival. None without one.
pub fn all(rows: &[Row], styles: &SeriesStyles) -> Option<Figure> {
    let gains: Vec<Gain> = rows
        .iter()
        .filter_map(|row| Gain::of(row, reference::rival(row, rows)?))
        .collect();
    let labels = distinct(gains.iter().map(|gain| gain.row.label.as_str()));
    let series = |gain: &Gain| {
        let of_gain = labels.iter().position(|label| *label == gain.row.label);
        of_gain.unwrap_or(0)
    };
    let heading = format!("Sluice relative to {}", name(&gains));
    let entry = |gain: &Gain| {
        let style = styles.get(gain.row);
        Line {
            series: Some(series(gain)),
            role: SeriesRole::Other,
            cells: vec![
                Cell::entry(style, &gain.row.label).with_small([gain.conditions()]),
                Cell::from(units::ratio(gain.median))
                    .with_small([units::ratio_range(gain.range[0], gain.range[1])]),
                tables::rounds_cell(gain.row),
                Cell::notes(notes::notes(gain.row, rows)),
            ],
        }
    };
    Some(Figure {
        plot: plot(
            &heading,
            &gains,
            |gain| gain.conditions(),
            |_, gain| series(gain),
            styles,
        )?,
        hint: hint(&gains),
        table: Table {
            caption: heading.clone(),
            heads: heads([
                ["mechanism", "conditions"],
                ["times better", "its rounds"],
                ["rounds", "class"],
                ["", ""],
            ]),
            lines: gains.iter().map(entry).collect(),
            wide: false,
        },
        heading,
    })
}

/// The name of the rivals.
fn name<'a>(gains: &[Gain<'a>]) -> &'a str {
    match references(gains)[..] {
        [one] => one,
        _ => "the reference",
    }
}

fn references<'a>(gains: &[Gain<'a>]) -> Vec<&'a str> {
    distinct(gains.iter().map(|gain| gain.rival.mechanism.as_str()))
}

fn hint(gains: &[Gain]) -> String {
    format!(
        "Right of 1, Sluice is better than {}: faster, or with fewer instructions. For times and instructions this is the \
         inverse of the ratio. Bars: from the smallest to the largest ratio within a round. Where it is better in some \
         rounds and worse in others, the two tie.",
        name(gains)
    )
}

/// One group for each label. None without a gain.
fn plot(
    title: &str,
    gains: &[Gain],
    label: impl Fn(&Gain) -> String,
    series: impl Fn(usize, &Gain) -> usize,
    styles: &SeriesStyles,
) -> Option<Drawing> {
    if gains.is_empty() {
        return None;
    }
    let ends = gains.iter().flat_map(|gain| gain.range).chain([1.0]);
    let axis = Axis {
        scale: Scale::logarithmic(ends, MAX_TICKS_X)?,
        label: format!("times better than {}", name(gains)),
        format: units::figures_short,
    };
    let interval = |(index, gain): (usize, &Gain)| Interval {
        series: series(index, gain),
        name: format!("{}, {}", gain.row.label, gain.conditions()),
        style: styles.get(gain.row),
        median: gain.median,
        range: gain.range,
        noisy: gain.row.is_noisy(),
    };
    let group = |text: String| Group {
        intervals: gains
            .iter()
            .enumerate()
            .filter(|(_, gain)| label(gain) == text)
            .map(interval)
            .collect(),
        label: text,
    };
    let plot = Plot {
        title: title.into(),
        axis,
        level: Some(1.0),
        groups: distinct(gains.iter().map(&label))
            .into_iter()
            .map(group)
            .collect(),
    };
    Some(plot.draw())
}
