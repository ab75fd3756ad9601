// SPDX-License-Identifier: MIT OR Apache-2.0
//! The figure of the rows with one title: a distribution function, or intervals where there are few samples.

use sluice_testkit::units;

use super::figure::{Figure, Point, Series};
use super::groups::sort_best_first;
use super::scale::{MAX_TICKS_X, SHARES, Scale};
use super::view::View;
use crate::harness::figures::Unit;
use crate::harness::rows::Row;

/// The first step that reaches one of these shares is marked.
const MARKED: [f64; 2] = [0.5, 0.99];

pub fn figure(title: &str, rows: &[&View]) -> Option<Figure> {
    const MIN_SAMPLES: usize = 50;
    let mut rows = rows.to_vec();
    sort_best_first(&mut rows, |view| Some(view.row));
    let mut samples = rows
        .iter()
        .map(|view| view.row.distribution.map_or(0, |one| one.n));
    match samples.all(|count| count >= MIN_SAMPLES) {
        true => distribution(title, &rows),
        false => intervals(title, &rows),
    }
}

fn distribution(title: &str, rows: &[&View]) -> Option<Figure> {
    let times = rows
        .iter()
        .flat_map(|view| steps(view.row))
        .map(|(time, _)| time);
    let (x, y) = (Scale::logarithmic(times, MAX_TICKS_X)?, Scale::shares());
    let series = rows.iter().map(|view| {
        let mut before = 0.0;
        let points = steps(view.row).into_iter().map(|(time, share)| {
            let is_marked = MARKED.iter().any(|&one| before < one && one <= share);
            before = share;
            Point {
                x: x.position(time),
                y: y.position(share),
                range: None,
                mark: is_marked.then(|| view.mark()),
            }
        });
        let points = points.collect();
        Series::of_row(view, view.row.label.clone(), String::new(), points)
    });
    Some(Figure {
        heading: title.into(),
        x: x.axis("time", units::time_tick),
        y: Some(y.axis("share of samples up to this time", percent)),
        series: series.collect(),
        ..Figure::default()
    })
}

/// The distribution function up to the largest share that is shown.
fn steps(row: &Row) -> Vec<(f64, f64)> {
    // The share of the largest sample is below 1, which only more samples could resolve.
    let most = 1.0 - 0.5 / row.distribution.map_or(1, |one| one.n) as f64;
    let steps = row.cdf.iter().flatten();
    let steps = steps.map(|&(time, share)| (time as f64, share.min(most)));
    let mut steps: Vec<(f64, f64)> = steps.collect();
    let shown = steps.partition_point(|(_, share)| *share < SHARES[1]);
    steps.truncate(shown + 1);
    steps
}

fn percent(share: f64) -> String {
    let text = format!("{:.2}", share * 100.0);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

fn intervals(title: &str, rows: &[&View]) -> Option<Figure> {
    let values = || {
        rows.iter()
            .filter_map(|view| Some((view, view.row.value.as_ref()?)))
    };
    let x = Scale::from_zero(values().flat_map(|(_, values)| values.spread))?;
    let series = values().map(|(view, values)| {
        let label = || view.row.label.clone();
        let point = Point::interval(&x, values.median, values.spread, view);
        Series::of_row(view, label(), label(), vec![point])
    });
    let (label, tick) = quantity(rows.first()?.row.unit?);
    Some(Figure {
        heading: title.into(),
        x: x.axis(label, tick),
        series: series.collect(),
        ..Figure::default()
    })
}

/// The label of an axis, and of its ticks.
pub fn quantity(unit: Unit) -> (&'static str, fn(f64) -> String) {
    match unit {
        Unit::Nanoseconds => ("time", units::time_tick),
        Unit::BytesPerSecond => ("bytes per second", units::rate_tick),
        Unit::OperationsPerSecond => ("operations per second", units::per_second_tick),
        Unit::Instructions => ("instructions", units::count_tick),
        Unit::Bytes => ("memory", |bytes| Unit::Bytes.text(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::samples::{Samples, distribution_function, summarize};

    #[test]
    fn a_curve_rises_and_ends_below_one() {
        let samples: Samples = (1..=1000).collect();
        let row = Row {
            cdf: distribution_function(&[&samples]),
            distribution: summarize(&[&samples]),
            ..Row::default()
        };
        let steps = steps(&row);
        assert!(
            steps
                .windows(2)
                .all(|pair| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1)
        );
        assert_eq!(steps.last().map(|(_, share)| *share), Some(0.9995));
        assert_eq!([0.01, 0.5, 0.9999].map(percent), ["1 %", "50 %", "99.99 %"]);
    }
}
