// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rate of several writers and readers of one channel by message size, and a table of context switches and
//! imbalance.

use sluice_testkit::units;

use super::super::groups::distinct;
use super::super::notes;
use super::super::series_style::SeriesStyles;
use super::super::tables::{self, Cell, Line, Table, heads};
use super::{Figure, figures_by, throughput};
use crate::harness::rows::Row;

pub fn figures(rows: &[&Row], styles: &SeriesStyles) -> Vec<Figure> {
    let counts = |row: &Row| (row.writers, row.receivers, row.placement);
    figures_by(rows, counts, |(writers, readers, placement), rows| {
        let (writers, readers) = (counted(writers?, "writer"), counted(readers?, "reader"));
        let place = placement.map_or("", |placement| placement.name());
        let heading = format!("{writers} to {readers}, {place}");
        let figure = throughput::by_size(heading, rows, styles)?;
        Some(Figure {
            table: table(&figure.heading, rows, styles),
            hint: "Marked: a writer that sends more than twice as many messages as another.".into(),
            ..figure
        })
    })
}

fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

fn table(caption: &str, rows: &[&Row], styles: &SeriesStyles) -> Table {
    let series = distinct(rows.iter().map(|row| row.label.as_str()));
    let line = |row: &&Row| {
        let style = styles.get(row);
        let [ratio, ratios] = tables::ratio_cells(row);
        Line {
            series: series.iter().position(|label| *label == row.label),
            role: style.role,
            cells: vec![
                Cell::entry(style, &row.label),
                row.size.map(units::size).into(),
                row.median_text().into(),
                ratio,
                ratios,
                row.context_switches_per_msg.map(units::figures).into(),
                Cell::notes(notes::notes(row, &[])),
            ],
        }
    };
    Table {
        caption: caption.into(),
        heads: heads([
            "mechanism",
            "message",
            "rate",
            "ratio to pipe",
            "its rounds",
            "context switches per message",
            "",
        ]),
        lines: rows.iter().map(line).collect(),
    }
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
