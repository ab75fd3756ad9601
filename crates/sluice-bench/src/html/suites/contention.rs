// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rate of several writers and readers of one channel against the size of messages, and a table of what it costs and how
//! evenly the writers get their turns.

use super::super::looks::{self, Looks};
use super::super::tables::{self, Line};
use super::super::text::escape;
use super::{Figure, distinct, throughput};
use crate::harness::rows::Row;
use crate::harness::units;

pub fn figures(rows: &[&Row], looks: &Looks) -> Vec<Figure> {
    let counts = |row: &Row| (row.writers, row.receivers, row.placement);
    distinct(rows.iter().map(|row| counts(row)))
        .into_iter()
        .filter_map(|wanted| {
            let fits = |row: &&Row| counts(row) == wanted;
            let rows: Vec<&Row> = rows.iter().copied().filter(fits).collect();
            figure(&rows, looks)
        })
        .collect()
}

fn figure(rows: &[&Row], looks: &Looks) -> Option<Figure> {
    let first = rows.first()?;
    let heading = format!(
        "{} to {}, {}",
        counted(first.writers?, "writer"),
        counted(first.receivers?, "reader"),
        first.placement.map_or("", |placement| placement.name())
    );
    let figure = throughput::by_size(heading, rows, looks)?;
    Some(Figure {
        table: table(&figure.heading, rows, looks),
        hint: "A writer that gets more than twice the turns of another is marked.".into(),
        ..figure
    })
}

pub fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

fn table(caption: &str, rows: &[&Row], looks: &Looks) -> String {
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
        let look = looks.get(row);
        let [ratio, ratios] = tables::ratio(row);
        let number = |value: Option<f64>| value.map(units::figures).unwrap_or_default();
        Line {
            series: series.iter().position(|label| *label == row.label),
            party: look.party,
            cells: vec![
                looks::entry(look, &row.label),
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
    fn one_is_not_several() {
        assert_eq!(counted(1, "reader"), "1 reader");
        assert_eq!(counted(8, "writer"), "8 writers");
    }
}
