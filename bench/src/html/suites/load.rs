// SPDX-License-Identifier: MIT OR Apache-2.0
//! The 99th percentile of the latency by the rate of messages, for all loads in one figure.

use sluice_testkit::units;

use super::super::drawing::Axis;
use super::super::groups::{distinct, groups};
use super::super::lines::{Line, MAX_TICKS_X, MAX_TICKS_Y, Mark, Plot, Point};
use super::super::scale::Scale;
use super::super::series_style::SeriesStyles;
use super::super::tables::{self, Cell, Head, Table};
use super::{Figure, figures_by};
use crate::harness::rows::Row;

pub fn figures(rows: &[&Row], styles: &SeriesStyles) -> Vec<Figure> {
    let conditions = |row: &Row| (row.size, row.placement);
    figures_by(rows, conditions, |(size, placement), rows| {
        let place = placement.map_or("", |placement| placement.name());
        let size = units::size(size?);
        let heading = format!("p99 of the latency by rate, {size} {place}");
        figure(heading, rows, styles)
    })
}

/// None with one load, which makes no line.
fn figure(heading: String, rows: &[&Row], styles: &SeriesStyles) -> Option<Figure> {
    let titles = distinct(rows.iter().map(|row| row.title.as_str()));
    if titles.len() < 2 {
        return None;
    }
    let mechanisms = groups(rows, |row| row.label.as_str());
    let lines: Vec<Line> = mechanisms
        .iter()
        .enumerate()
        .filter_map(|(series, (_, rows))| line(series, rows, styles))
        .collect();
    let points = || lines.iter().flat_map(|line| &line.points);
    let plot = Plot {
        title: heading.clone(),
        x: Axis {
            scale: Scale::logarithmic(points().map(|point| point.x), MAX_TICKS_X)?,
            label: "messages per second".into(),
            format: units::per_second_tick,
        },
        y: Axis {
            scale: Scale::logarithmic(points().map(|point| point.y), MAX_TICKS_Y)?,
            label: "p99 of the latency".into(),
            format: units::time_tick,
        },
        level: None,
        lines,
    };
    let row_of = |(series, (_, rows)): (usize, &(&str, Vec<&Row>))| {
        let style = styles.get(rows[0]);
        let name = Cell::entry(style, &rows[0].label);
        let cell = |title: &&str| {
            let row = rows.iter().find(|row| row.title == *title);
            row.map(|row| cell(row)).into()
        };
        tables::Line {
            series: Some(series),
            role: style.role,
            cells: [name].into_iter().chain(titles.iter().map(cell)).collect(),
        }
    };
    let heads = titles.iter().map(|title| Head::from(load(title, rows)));
    Some(Figure {
        table: Table {
            caption: heading.clone(),
            heads: [Head::from("mechanism")].into_iter().chain(heads).collect(),
            lines: mechanisms.iter().enumerate().map(row_of).collect(),
            wide: titles.len() > tables::MAX_COLUMNS_BESIDE_PLOT,
        },
        hint: "Rates are those that the receiver got. In the table below each p99: p50, p99.9 and p99.99 with enough samples, and the rate.".into(),
        heading,
        plot: plot.draw(),
    })
}

fn line(series: usize, rows: &[&Row], styles: &SeriesStyles) -> Option<Line> {
    let point = |row: &&Row| {
        Some(Point {
            x: row.msgs_per_s?,
            y: row.distribution?.p99? as f64,
            range: None,
            mark: Mark::of(row.is_noisy()),
        })
    };
    // In the order of the loads: beyond saturation, the rate does not rise with them.
    let points: Vec<Point> = rows.iter().filter_map(point).collect();
    let first = rows.first()?;
    (!points.is_empty()).then(|| Line {
        series,
        name: first.label.clone(),
        style: styles.get(first),
        points,
    })
}

/// The load of the rows with this title.
fn load(title: &str, rows: &[&Row]) -> String {
    let row = rows.iter().find(|row| row.title == title);
    let percent = row.and_then(|row| row.load_percent);
    percent.map_or_else(|| title.into(), |percent| format!("{percent} %"))
}

fn cell(row: &Row) -> Cell {
    let time = |ns: u64| units::nanoseconds(ns as f64);
    let p50 = row.distribution.map(|one| format!("p50 {}", time(one.p50)));
    let p999 = row.distribution.and_then(|one| one.p999);
    let p999 = p999.map(|ns| format!("p99.9 {}", time(ns)));
    let p9999 = row.distribution.and_then(|one| one.p9999);
    let p9999 = p9999.map(|ns| format!("p99.99 {}", time(ns)));
    let rate = row.msgs_per_s.map(units::per_second);
    let p99 = row.distribution.and_then(|all| all.p99).map(time);
    Cell::from(p99).with_small([p50, p999, p9999, rate].into_iter().flatten())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::pinning::Placement;
    use crate::harness::samples::tests::summary;

    fn row(rate: f64, title: &str) -> Row {
        Row {
            suite: "load".into(),
            label: "ring".into(),
            title: title.into(),
            size: Some(64),
            load_percent: Some((rate / 1e4) as u32),
            placement: Some(Placement::TwoCpus),
            msgs_per_s: Some(rate),
            distribution: summary(1..=1000),
            ..Row::default()
        }
    }

    #[test]
    fn several_loads_make_one_line_and_one_load_none() {
        let rows = [
            row(1e5, "64 B 10 %, 100 k/s two-cpus"),
            row(9e5, "64 B 90 %, 900 k/s two-cpus"),
        ];
        let rows: Vec<&Row> = rows.iter().collect();
        let styles = SeriesStyles::default();
        let figures = figures(&rows, &styles);
        assert_eq!(figures.len(), 1);
        let heads: Vec<&str> = figures[0]
            .table
            .heads
            .iter()
            .map(|head| head.text.as_str())
            .collect();
        assert_eq!(heads, ["mechanism", "10 %", "90 %"]);
        let cell = &figures[0].table.lines[0].cells[1];
        assert_eq!(cell.text, "990 ns");
        assert_eq!(cell.small, ["p50 500 ns", "100 k/s"]);
        assert!(super::figures(&rows[..1], &styles).is_empty());
    }
}
