// SPDX-License-Identifier: MIT OR Apache-2.0
//! A plot: an interval for each row over one axis. plot.html draws it as SVG.

use serde::Serialize;

/// What is drawn, at positions from 0 to 1.
#[derive(Serialize)]
pub struct Plot {
    pub heading: String,
    axis: String,
    ticks: Vec<(f64, String)>,
    /// The position of 1 among ratios.
    level: Option<f64>,
    intervals: Vec<Interval>,
}

/// The median of a row, and its smallest and largest round.
#[derive(Serialize)]
pub struct Interval {
    /// The pointer highlights all intervals of one name.
    pub name: String,
    /// Intervals of one group stand below its name.
    pub group: String,
    pub row: usize,
    pub median: f64,
    pub range: [f64; 2],
}

pub struct Axis {
    is_logarithmic: bool,
    ends: [f64; 2],
    ticks: Vec<f64>,
}

/// In all decades that results have.
fn round_numbers(steps: &[f64]) -> impl DoubleEndedIterator<Item = f64> {
    let of_decade = |decade| steps.iter().map(move |step| step * 10f64.powi(decade));
    (-9..18).flat_map(of_decade)
}

const STEPS: [f64; 3] = [1.0, 2.0, 5.0];

impl Axis {
    /// From 0 to a round number beyond all values.
    pub fn from_zero(most: f64) -> Self {
        const MIN_STEPS: f64 = 2.5;
        let is_small = |step: &f64| *step <= most / MIN_STEPS;
        let step = round_numbers(&STEPS).rev().find(is_small).unwrap_or(1.0);
        let steps = (most / step).ceil().max(1.0) as usize;
        Self {
            is_logarithmic: false,
            ends: [0.0, steps as f64 * step],
            ticks: (0..=steps).map(|number| number as f64 * step).collect(),
        }
    }

    /// Logarithmic, from a round number to another one, which include 1. None if a value is not positive.
    pub fn of_ratios(values: impl Iterator<Item = f64>) -> Option<Self> {
        const MAX_TICKS: usize = 7;
        let [least, most] = values.fold([1.0; 2], |[least, most], value: f64| {
            [value.min(least), value.max(most)]
        });
        let from = round_numbers(&STEPS).rev().find(|&one| one <= least)?;
        let to = round_numbers(&STEPS).find(|&one| one >= most && one > from)?;
        let ticks = |steps| -> Vec<f64> {
            let all = round_numbers(steps).skip_while(|&one| one < from);
            all.take_while(|&one| one <= to).collect()
        };
        let fine = ticks(&STEPS);
        Some(Self {
            is_logarithmic: true,
            ends: [from, to],
            ticks: if fine.len() > MAX_TICKS {
                ticks(&[1.0])
            } else {
                fine
            },
        })
    }

    /// 0 at the beginning of the axis, 1 at its end.
    fn position(&self, value: f64) -> f64 {
        let [from, to] = self.ends;
        let position = match self.is_logarithmic {
            true => (value / from).ln() / (to / from).ln(),
            false => (value - from) / (to - from),
        };
        position.clamp(0.0, 1.0)
    }
}

impl Plot {
    pub fn new(
        heading: &str,
        label: &str,
        axis: Axis,
        tick: fn(f64) -> String,
        mut intervals: Vec<Interval>,
    ) -> Self {
        for one in &mut intervals {
            one.median = axis.position(one.median);
            one.range = one.range.map(|end| axis.position(end));
        }
        let ticks = axis.ticks.iter();
        Self {
            heading: heading.into(),
            axis: match axis.is_logarithmic {
                true => format!("{label}, logarithmic"),
                false => label.into(),
            },
            ticks: ticks.map(|&one| (axis.position(one), tick(one))).collect(),
            level: axis.is_logarithmic.then(|| axis.position(1.0)),
            intervals,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few_and_equal_factors_equally_far_apart() {
        let of_ratios = |ends: [f64; 2]| Axis::of_ratios(ends.into_iter());
        for (axis, expected) in [
            (Some(Axis::from_zero(170.0)), "0 50 100 150 200"),
            (Some(Axis::from_zero(0.0)), "0 1"),
            (of_ratios([3.0, 40.0]), "1 2 5 10 20 50"),
            (of_ratios([0.01, 99.0]), "0.01 0.1 1 10 100"),
        ] {
            let ticks = axis.unwrap().ticks;
            let ticks: Vec<String> = ticks.iter().map(f64::to_string).collect();
            assert_eq!(ticks.join(" "), expected);
        }
        assert!(of_ratios([0.0, 1.0]).is_none());
        let position = of_ratios([0.01, 100.0]).unwrap().position(10.0);
        assert!((position - 0.75).abs() < 1e-9);
    }
}
