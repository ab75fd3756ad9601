// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rate of several writers and readers of one channel by message size, and a table of context switches and
//! imbalance.

use sluice_testkit::units;

use super::super::series_style::{self, SeriesStyles};
use super::super::tables::{self, Line};
use super::super::text::escape;
use super::{Figure, distinct, throughput};
use crate::harness::rows::Row;

pub fn figures(rows: &[&Row], styles: &SeriesStyles) -> Vec<Figure> {
    let counts = |row: &Row| (row.writers, row.receivers, row.placement);
    distinct(rows.iter().map(|row| counts(row)))
        .into_iter()
        .filter_map(|wanted| {
            let fits = |row: &&Row| counts(row) == wanted;
            let rows: Vec<&Row> = rows.iter().copied().filter(fits).collect();
            figure(&rows, styles)
        })
        .collect()
}

fn figure(rows: &[&Row], styles: &SeriesStyles) -> Option<Figure> {
    let first = rows.first()?;
    let heading = format!(
        "{} to {}, {}",
        counted(first.writers?, "writer"),
        counted(first.receivers?, "reader"),
        first.placement.map_or("", |placement| placement.name())
    );
    let figure = throughput::by_size(heading, rows, styles)?;
    Some(Figure {
        table: table(&figure.heading, rows, styles),
        hint: "Marked: a writer that sends more than twice as many messages as another.".into(),
        ..figure
    })
}

pub fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

fn table(caption: &str, rows: &[&Row], styles: &SeriesStyles) -> String {
    let heads = [
        "mechanism",
        "message",
        "rate",
        "ratio to pipe",
        "its rounds",
        "context switches per message",
        "",
    ];
    let series = distinct(rows.iter().map(|row| row.label.as_str()));
    let line = |row: &&Row| {
        let style = styles.get(row);
        let [ratio, ratios] = tables::ratio(row);
        let number = |value: Option<f64>| value.map(units::figures).unwrap_or_default();
        Line {
            series: series.iter().position(|label| *label == row.label),
            role: style.role,
            cells: vec![
                series_style::entry(style, &row.label),
                row.size.map(units::size).unwrap_or_default(),
                escape(&tables::median(row)),
                ratio,
                ratios,
                number(row.context_switches_per_msg),
                super::super::notes::notes(row, &[]),
            ],
        }
    };
    let lines: Vec<Line> = rows.iter().map(line).collect();
    tables::table(caption, &heads.map(String::from), &lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_noun_agrees_with_the_count() {
        assert_eq!(counted(1, "reader"), "1 reader");
        assert_eq!(counted(8, "writer"), "8 writers");
    }
}
