// SPDX-License-Identifier: MIT OR Apache-2.0
//! The figures of each suite. The kind of plot depends on the rows, so that a new suite has figures, too.

mod contention;
mod curves;
mod fanout;
mod isolation;
mod latency;
mod load;
mod medians;
mod processes;
mod scaling;
mod throughput;

use serde::Serialize;

use super::drawing::Drawing;
use super::groups::{distinct, groups, measured};
use super::series_style::SeriesStyles;
use super::tables::{self, Table};
use crate::harness::rows::{OPERATIONS, Results, Row};
use crate::reports;

/// A plot and its table.
#[derive(Serialize)]
pub struct Figure {
    pub heading: String,
    /// An explanation that the heading and the axes do not give.
    pub hint: String,
    pub plot: Drawing,
    pub table: Table,
}

#[derive(Serialize)]
pub struct Suite<'a> {
    name: &'a str,
    anchor: String,
    figures: Vec<Figure>,
    /// The link targets of the figures.
    anchors: Vec<String>,
    /// The text of the reports, as on the terminal.
    text: Option<String>,
    /// The length of the longest line of the text.
    columns: usize,
    absent: Vec<Absent<'a>>,
    all: Table,
}

/// A mechanism without results: each reason once, with its conditions.
#[derive(Serialize)]
struct Absent<'a> {
    label: &'a str,
    reason: &'a str,
    failed: bool,
    titles: String,
}

pub fn suites<'a>(results: &'a Results, styles: &SeriesStyles) -> Vec<Suite<'a>> {
    let rows: Vec<&Row> = results.rows.iter().collect();
    let suites = groups(&rows, |row| row.suite.as_str()).into_iter();
    suites
        .map(|(name, rows)| suite(name, &rows, &results.rows, styles))
        .collect()
}

fn suite<'a>(name: &'a str, rows: &[&'a Row], all: &'a [Row], styles: &SeriesStyles) -> Suite<'a> {
    let measured = measured(rows);
    let figures = figures(&measured, all, styles);
    let text = reports::text(name, all);
    let lengths = text.iter().flat_map(|text| text.lines());
    let target = |figure: &Figure| anchor(&[name, &figure.heading]);
    Suite {
        name,
        anchor: anchor(&["suite", name]),
        anchors: figures.iter().map(target).collect(),
        figures,
        columns: lengths.map(|line| line.chars().count()).max().unwrap_or(0),
        text,
        absent: absent(rows),
        all: tables::everything(&measured, all, styles),
    }
}

fn absent<'a>(rows: &[&'a Row]) -> Vec<Absent<'a>> {
    let reasons = groups(rows, |row| (&row.label, &row.skipped, row.failed));
    let absent =
        |((label, reason, failed), rows): ((&'a String, &'a Option<String>, _), Vec<&Row>)| {
            Some(Absent {
                label,
                reason: reason.as_deref()?,
                failed: failed == Some(true),
                titles: distinct(rows.iter().map(|row| row.title.as_str())).join(", "),
            })
        };
    reasons.into_iter().filter_map(absent).collect()
}

/// A link target.
fn anchor(words: &[&str]) -> String {
    let plain = |character: char| match character {
        'a'..='z' | 'A'..='Z' | '0'..='9' => character.to_ascii_lowercase(),
        _ => '-',
    };
    words.join("-").chars().map(plain).collect()
}

/// One figure for each value of a property.
fn figures_by<'a, T: PartialEq>(
    rows: &[&'a Row],
    property: impl Fn(&'a Row) -> T,
    figure: impl Fn(T, &[&'a Row]) -> Option<Figure>,
) -> Vec<Figure> {
    let groups = groups(rows, property).into_iter();
    groups
        .filter_map(|(value, rows)| figure(value, &rows))
        .collect()
}

/// The kind of a row, which determines its plot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The rate with other pairs.
    Neighbours,
    /// The cost or rate of one sender and several receivers.
    Fanout,
    /// The rate of several processes of one channel.
    Sharing,
    /// The rate of an operation by number of processes.
    Processes,
    /// A time by number of names or scopes.
    Scaling,
    /// The latency at a given rate.
    Load,
    /// The rate of messages in batches.
    Batch,
    Rate,
    Time,
}

impl Kind {
    fn of(row: &Row) -> Self {
        match row.unit.as_deref() {
            _ if row.neighbours.is_some() => Self::Neighbours,
            _ if row.receiver_state.is_some() => Self::Fanout,
            _ if row.writers.is_some() => Self::Sharing,
            Some(OPERATIONS) => Self::Processes,
            _ if row.operation.is_some() => Self::Scaling,
            _ if row.suite == "load" => Self::Load,
            _ if row.batch.is_some() => Self::Batch,
            Some("bytes/s") => Self::Rate,
            _ => Self::Time,
        }
    }
}

fn figures(rows: &[&Row], all: &[Row], styles: &SeriesStyles) -> Vec<Figure> {
    let kinds = groups(rows, Kind::of).into_iter();
    kinds
        .flat_map(|(kind, rows)| figures_of_kind(kind, &rows, all, styles))
        .collect()
}

fn figures_of_kind(kind: Kind, rows: &[&Row], all: &[Row], styles: &SeriesStyles) -> Vec<Figure> {
    const MIN_SAMPLES: usize = 50;
    let sampled = |row: &&Row| row.distribution.is_some_and(|one| one.n >= MIN_SAMPLES);
    let sizes = distinct(rows.iter().filter_map(|row| row.size)).len();
    match kind {
        Kind::Neighbours => isolation::figures(rows, all, styles),
        Kind::Fanout => fanout::figures(rows, all, styles),
        Kind::Sharing => contention::figures(rows, all, styles),
        Kind::Processes => processes::figures(rows, all, styles),
        Kind::Scaling => scaling::figures(rows, all),
        Kind::Load => {
            let by_rate = load::figures(rows, styles).into_iter();
            by_rate.chain(latency::figures(rows, all, styles)).collect()
        }
        Kind::Rate if sizes > 1 => throughput::figures(rows, all, styles),
        Kind::Time if rows.iter().all(sampled) => latency::figures(rows, all, styles),
        Kind::Batch | Kind::Rate | Kind::Time => medians::figures(rows, all, styles),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchors_are_plain() {
        assert_eq!(anchor(&["rtt", "1 KiB <x>"]), "rtt-1-kib--x-");
    }
}
