// SPDX-License-Identifier: MIT OR Apache-2.0
//! The model of report 2: a message of L bytes takes 2 T_sys + L T_copy over the kernel, and 2 T_sync + L T_copy over
//! shared memory. Both are linear fits to the results, and shared memory overtakes the pipe at their intersection.

use minijinja::value::Serde;
use serde::{Deserialize, Serialize};

use crate::harness::figures::MESSAGES_PER_SECOND;
use crate::harness::rows::Row;

/// The time of a message in nanoseconds: `fixed`, and `per_byte` for each byte.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    fixed: f64,
    per_byte: f64,
}

/// The size and the time in nanoseconds of a message, by size.
fn points(rows: &[Row]) -> Vec<(f64, f64)> {
    let point = |row: &Row| Some((row.size? as f64, 1e9 / row.median_of(MESSAGES_PER_SECOND)?));
    rows.iter().filter_map(point).collect()
}

/// The least-squares fit to streams of several sizes; None without two different sizes.
pub fn fit(streams: Serde<Vec<Row>>) -> Option<Serde<Line>> {
    let points = points(&streams);
    let n = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
    let (mean_size, mean_time) = (mean(|point| point.0), mean(|point| point.1));
    let products = |of: &dyn Fn(f64, f64) -> f64| {
        let points = points.iter();
        points
            .map(|(size, time)| (size - mean_size) * of(*size, *time))
            .sum::<f64>()
    };
    let spread = products(&|size, _| size - mean_size);
    let per_byte = products(&|_, time| time - mean_time) / spread;
    let line = Line {
        fixed: mean_time - per_byte * mean_size,
        per_byte,
    };
    (spread > 0.0).then_some(Serde(line))
}

/// The size from which the first takes less than the second, if any.
pub fn overtakes(ours: Serde<Line>, theirs: Serde<Line>) -> Option<f64> {
    let gain = theirs.per_byte - ours.per_byte;
    let lag = ours.fixed - theirs.fixed;
    let size = if lag <= 0.0 { 0.0 } else { lag / gain };
    (gain > 0.0 && size.is_finite()).then_some(size)
}

/// The smallest measured size from which the first always takes less than the second.
pub fn measured_crossover(ours: Serde<Vec<Row>>, theirs: Serde<Vec<Row>>) -> Option<f64> {
    let theirs = points(&theirs);
    let time_of = |size| {
        theirs
            .iter()
            .find(|point| point.0 == size)
            .map(|point| point.1)
    };
    let pairs = points(&ours).into_iter();
    let pairs: Vec<_> = pairs
        .filter_map(|(size, time)| Some((size, time, time_of(size)?)))
        .collect();
    let last_slower = pairs.iter().rposition(|(_, ours, theirs)| ours >= theirs);
    let first = last_slower.map_or(0, |last| last + 1);
    pairs.get(first).map(|(size, ..)| *size)
}
