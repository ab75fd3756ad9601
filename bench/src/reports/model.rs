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
    let sum = |of: fn(f64, f64) -> f64| points.iter().map(|&(x, y)| of(x, y)).sum::<f64>();
    let (x, y) = (sum(|x, _| x), sum(|_, y| y));
    let spread = n * sum(|x, _| x * x) - x * x;
    let per_byte = (n * sum(|x, y| x * y) - x * y) / spread;
    let fixed = (y - per_byte * x) / n;
    (spread > 0.0).then_some(Serde(Line { fixed, per_byte }))
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
    let mut crossover = None;
    for (size, time) in points(&ours) {
        let Some((_, other)) = theirs.iter().find(|point| point.0 == size) else {
            continue;
        };
        let is_less = time < *other;
        crossover = crossover.or(Some(size)).filter(|_| is_less);
    }
    crossover
}
