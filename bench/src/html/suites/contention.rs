// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rate of several writers and readers of one channel by message size, and a table of costs and
//! imbalance.

use sluice_testkit::units;

use super::super::groups::distinct;
use super::super::series_style::SeriesStyles;
use super::super::tables::{self, Cell, Column, Entry, Table};
use super::{Figure, figures_by, throughput};
use crate::harness::rows::Row;

pub fn figures(rows: &[&Row], all: &[Row], styles: &SeriesStyles) -> Vec<Figure> {
    let counts = |row: &Row| (row.writers, row.receivers, row.placement);
    figures_by(rows, counts, |(writers, readers, placement), rows| {
        let (writers, readers) = (
            units::counted(writers?, "writer"),
            units::counted(readers?, "reader"),
        );
        let place = placement.map_or("", |placement| placement.name());
        let heading = format!("{writers} to {readers}, {place}");
        let figure = throughput::by_size(heading, rows, all, styles)?;
        Some(Figure {
            table: table(&figure.heading, rows, all, styles),
            hint: "Marked: a writer that sends more than twice as many messages as another.".into(),
            ..figure
        })
    })
}

fn table(caption: &str, rows: &[&Row], all: &[Row], styles: &SeriesStyles) -> Table {
    let series = distinct(rows.iter().map(|row| row.label.as_str()));
    let entries = rows
        .iter()
        .map(|&row| Entry {
            series: series.iter().position(|label| *label == row.label),
            ..Entry::new(0, row, styles.get(row))
        })
        .collect();
    let columns = vec![
        Column::new("message", |row| row.size.map(units::size).into()),
        Column::new(["rate", "its rounds"], tables::median_cell),
        Column::new(tables::ratio_head(rows.iter().copied()), tables::ratio_cell),
        Column::new(["rounds", "class"], tables::rounds_cell),
        Column::new(["CPU per message", "context switches"], |row| {
            Cell::from(row.cpu_ns_per_msg.map(units::nanoseconds))
                .with_small(row.context_switches_per_msg.map(units::figures))
        }),
        Column::notes(all),
    ];
    tables::table(caption.into(), "mechanism".into(), entries, columns)
}
