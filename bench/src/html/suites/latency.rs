// SPDX-License-Identifier: MIT OR Apache-2.0
//! Distribution functions of latencies, one figure for each set of conditions.

use sluice_testkit::units;

use super::super::drawing::Axis;
use super::super::groups::distinct;
use super::super::lines::{Line, MAX_TICKS_X, Mark, Plot, Point};
use super::super::scale::{SHARES, Scale};
use super::super::series_style::{SeriesStyle, SeriesStyles};
use super::super::tables;
use super::{Figure, figures_by};
use crate::harness::rows::Row;

pub fn figures(rows: &[&Row], all: &[Row], styles: &SeriesStyles) -> Vec<Figure> {
    let figure = |title: &str, rows: &[&Row]| figure(title, rows, all, styles);
    figures_by(rows, |row| row.title.as_str(), figure)
}

fn figure(title: &str, rows: &[&Row], all: &[Row], styles: &SeriesStyles) -> Option<Figure> {
    let entries: Vec<(usize, &Row, SeriesStyle)> = tables::sorted(rows)
        .into_iter()
        .enumerate()
        .map(|(series, row)| (series, row, styles.get(row)))
        .collect();
    let lines: Vec<Line> = entries
        .iter()
        .map(|&(series, row, style)| line(series, row, style))
        .collect();
    let times = lines
        .iter()
        .flat_map(|line| &line.points)
        .map(|point| point.x);
    let plot = Plot {
        title: format!("Distribution of latencies, {title}"),
        x: Axis {
            scale: Scale::logarithmic(times, MAX_TICKS_X)?,
            label: "time".into(),
            format: units::time_tick,
        },
        y: Axis {
            scale: Scale::shares(),
            label: "share of samples up to this time, logit scale".into(),
            format: percent,
        },
        level: None,
        lines,
    };
    Some(Figure {
        heading: title.into(),
        hint: distance(rows),
        plot: plot.draw(),
        table: tables::latencies(format!("Latencies, {title}"), &entries, all),
    })
}

/// The distance of the processors, if it is the same for all rows.
fn distance(rows: &[&Row]) -> String {
    match distinct(rows.iter().filter_map(|row| row.probe_class))[..] {
        [class] => format!("Distance of the processors: {}.", class.name()),
        _ => String::new(),
    }
}

fn percent(share: f64) -> String {
    let text = format!("{:.2}", share * 100.0);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

fn line(series: usize, row: &Row, style: SeriesStyle) -> Line {
    let samples = row.distribution.map_or(1, |one| one.n) as f64;
    let mut points = Vec::new();
    for &(time, share) in row.cdf.iter().flatten() {
        // The share of the largest sample is below 1, which only more samples could resolve.
        let share = share.min(1.0 - 0.5 / samples);
        points.push(Point {
            x: time as f64,
            y: share,
            range: None,
            mark: Mark::None,
        });
        if share >= SHARES[1] {
            break;
        }
    }
    mark_percentiles(&mut points, row.is_noisy());
    Line {
        series,
        name: row.label.clone(),
        style,
        points,
    }
}

/// Marks the steps nearest to the percentiles.
fn mark_percentiles(points: &mut [Point], noisy: bool) {
    for percentile in [0.5, 0.99] {
        if let Some(point) = points.iter_mut().find(|point| point.y >= percentile) {
            point.mark = Mark::of(noisy);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::samples::{Samples, distribution_function, summarize};

    #[test]
    fn a_curve_rises_ends_below_one_and_has_two_marks() {
        let samples: Samples = (1..=1000).collect();
        let row = Row {
            cdf: distribution_function(&[&samples]),
            distribution: summarize(&[&samples]),
            ..Row::default()
        };
        let line = line(0, &row, SeriesStyle::numbered(0));
        assert!(
            line.points
                .windows(2)
                .all(|pair| pair[0].x < pair[1].x && pair[0].y < pair[1].y)
        );
        assert_eq!(line.points.last().unwrap().y, 0.9995);
        let marked: Vec<f64> = line
            .points
            .iter()
            .filter(|point| point.mark != Mark::None)
            .map(|point| point.x)
            .collect();
        assert!(
            matches!(marked[..], [500.0..530.0, 990.0..995.0]),
            "{marked:?}"
        );
    }

    #[test]
    fn shares_are_shown_in_percent() {
        assert_eq!([0.01, 0.5, 0.9999].map(percent), ["1 %", "50 %", "99.99 %"]);
    }
}
