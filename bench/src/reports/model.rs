// SPDX-License-Identifier: MIT OR Apache-2.0
//! The model of report 2: a message of L bytes takes 2 T_sys + L T_copy over the kernel, and 2 T_sync + L T_copy over
//! shared memory. Both are linear fits to the results, and shared memory overtakes the pipe at their intersection.

use std::fmt::Write as _;

use sluice_testkit::table::{Align, Table};
use sluice_testkit::units;

use super::{Measured, Rows};

const SIZES: [Measured; 4] = [
    Measured::STREAM_64,
    Measured::STREAM_256,
    Measured::BULK,
    Measured::STREAM_1K,
];

/// The time of a message in nanoseconds: `fixed`, and `per_byte` for each byte.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    fixed: f64,
    per_byte: f64,
}

impl Line {
    /// The least-squares fit; None without two different sizes.
    pub fn through(points: &[(f64, f64)]) -> Option<Self> {
        let n = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
        let (mean_size, mean_time) = (mean(|point| point.0), mean(|point| point.1));
        let spread: f64 = points
            .iter()
            .map(|(size, _)| (size - mean_size).powi(2))
            .sum();
        if points.len() < 2 || spread == 0.0 {
            return None;
        }
        let covariance: f64 = points
            .iter()
            .map(|(size, time)| (size - mean_size) * (time - mean_time))
            .sum();
        let per_byte = covariance / spread;
        Some(Self {
            fixed: mean_time - per_byte * mean_size,
            per_byte,
        })
    }

    /// The share of the time of a message that its bytes take.
    pub fn share_of_bytes(self, size: f64) -> f64 {
        self.per_byte * size / self.at(size)
    }

    fn at(self, size: f64) -> f64 {
        self.fixed + self.per_byte * size
    }

    /// The size from which `self` takes less than `other`, if any.
    fn overtakes(self, other: Self) -> Option<f64> {
        let gain = other.per_byte - self.per_byte;
        let lag = self.fixed - other.fixed;
        match (lag <= 0.0, gain > 0.0) {
            (true, true) => Some(0.0),
            (false, true) => Some(lag / gain),
            _ => None,
        }
    }
}

/// The size and the time in nanoseconds of a message, for each measured size.
pub fn points(rows: &Rows, label: &str) -> Vec<(f64, f64)> {
    let point = |measured: &Measured| {
        let rate = rows.find(*measured, label)?.msgs_per_s?;
        Some((measured.size() as f64, 1e9 / rate))
    };
    SIZES.iter().filter_map(point).collect()
}

/// The smallest size from which `ours` always takes less than `theirs`.
pub fn measured_crossover(ours: &[(f64, f64)], theirs: &[(f64, f64)]) -> Option<f64> {
    let of_size = |size: f64| theirs.iter().find(|point| point.0 == size);
    let pairs: Vec<_> = ours
        .iter()
        .filter_map(|point| Some((point, of_size(point.0)?)))
        .collect();
    let last_slower = pairs.iter().rposition(|(ours, theirs)| ours.1 >= theirs.1);
    let first = last_slower.map_or(0, |last| last + 1);
    pairs.get(first).map(|(ours, _)| ours.0)
}

pub fn text(rows: &Rows) -> String {
    let mut text = String::from(
        "Model of report 2, fitted to the streams above: a message of L bytes takes 2 T_sys + L T_copy over the kernel\n\
         and 2 T_sync + L T_copy over shared memory\n\n",
    );
    let mut table = Table::new(&[
        ("mechanism", Align::Left),
        ("T_sys or T_sync", Align::Right),
        ("T_copy", Align::Right),
        ("residual at 64 B", Align::Right),
        ("256 B", Align::Right),
        ("512 B", Align::Right),
        ("1024 B", Align::Right),
    ]);
    for label in ["pipe", "sluice-pipe", "myipc", "shm-sem"] {
        let points = points(rows, label);
        if let Some(line) = Line::through(&points) {
            table.row(row(label, line, &points));
        }
    }
    text += &format!("{table}");
    text += &crossover(rows);
    text
}

fn row(label: &str, line: Line, points: &[(f64, f64)]) -> [String; 7] {
    let residual = |index: usize| {
        let size = SIZES[index].size() as f64;
        let point = points.iter().find(|point| point.0 == size);
        point.map_or_else(String::new, |(_, time)| {
            format!("{:+.0} %", 100.0 * (time - line.at(size)) / time)
        })
    };
    [
        label.to_string(),
        signed_nanoseconds(line.fixed / 2.0),
        format!("{:.2} ns/B", line.per_byte),
        residual(0),
        residual(1),
        residual(2),
        residual(3),
    ]
}

/// A fit may yield a negative time, which shows that the model does not hold.
fn signed_nanoseconds(value: f64) -> String {
    match value < 0.0 {
        true => format!("-{}", units::nanoseconds(-value)),
        false => units::nanoseconds(value),
    }
}

fn crossover(rows: &Rows) -> String {
    let (pipe, memory) = (points(rows, "pipe"), points(rows, "shm-sem"));
    let (Some(pipe_line), Some(memory_line)) = (Line::through(&pipe), Line::through(&memory))
    else {
        return "the crossover requires pipe and shm-sem\n".into();
    };
    let mut text = String::from("shared memory with semaphores overtakes pipe(2): ");
    let text_of = |size: Option<f64>| match size {
        Some(0.0) => "at every size".to_string(),
        Some(size) if size.is_finite() => format!("from {size:.0} B on"),
        _ => "never".to_string(),
    };
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "model {}; measured {}; report between 64 and 256 B",
        text_of(memory_line.overtakes(pipe_line)),
        text_of(measured_crossover(&memory, &pipe))
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reports::tests::row as measured_row;

    #[test]
    fn a_line_is_fitted_to_collinear_points() {
        let points = [64.0, 256.0, 512.0, 1024.0].map(|size| (size, 700.0 + 0.5 * size));
        let line = Line::through(&points).unwrap();
        assert!((line.fixed - 700.0).abs() < 1e-6 && (line.per_byte - 0.5).abs() < 1e-9);
        assert_eq!(Line::through(&points[..1]), None);
        assert_eq!(Line::through(&[points[0], points[0]]), None);
    }

    #[test]
    fn a_flatter_line_overtakes_a_steeper_one() {
        let line = |fixed, per_byte| Line { fixed, per_byte };
        assert_eq!(line(900.0, 1.0).overtakes(line(700.0, 2.0)), Some(200.0));
        assert_eq!(line(500.0, 1.0).overtakes(line(700.0, 2.0)), Some(0.0));
        assert_eq!(line(900.0, 2.0).overtakes(line(700.0, 1.0)), None);
    }

    #[test]
    fn a_crossover_follows_the_last_slower_size() {
        let theirs = [(64.0, 10.0), (256.0, 10.0), (512.0, 10.0)];
        let ours = |times: [f64; 3]| [(64.0, times[0]), (256.0, times[1]), (512.0, times[2])];
        assert_eq!(
            measured_crossover(&ours([11.0, 9.0, 9.0]), &theirs),
            Some(256.0)
        );
        assert_eq!(
            measured_crossover(&ours([9.0, 9.0, 9.0]), &theirs),
            Some(64.0)
        );
        assert_eq!(measured_crossover(&ours([9.0, 9.0, 11.0]), &theirs), None);
    }

    #[test]
    fn the_table_shows_times_and_residuals() {
        let mut all = Vec::new();
        for measured in SIZES {
            let size = measured.size() as f64;
            for (label, time) in [("pipe", 1000.0 + size), ("shm-sem", 1200.0 + 0.5 * size)] {
                let rate = size * 1e9 / time;
                all.push(measured_row(measured, label, rate, [rate, rate]));
            }
        }
        let text = text(&Rows::of(&all));
        assert!(
            text.contains("500 ns") && text.contains("1.00 ns/B"),
            "{text}"
        );
        assert!(
            text.contains("model from 400 B on; measured from 512 B on"),
            "{text}"
        );
    }
}
