// SPDX-License-Identifier: MIT OR Apache-2.0
//! The position of a value on an axis, and its tick labels.

use serde::Serialize;

/// The maximum number of labels of a logarithmic axis.
pub const MAX_TICKS_X: usize = 7;
pub const MAX_TICKS_Y: usize = 12;
/// The range of shares that a distribution shows.
pub const SHARES: [f64; 2] = [0.01, 0.9999];

#[derive(Clone, Copy)]
enum Transform {
    Linear,
    Logarithmic,
    /// Logit: the distance from 99 % to 99.9 % is that from 99.9 % to 99.99 %.
    Logit,
}

pub struct Scale {
    transform: Transform,
    ends: [f64; 2],
    /// The values with a label.
    ticks: Vec<f64>,
    /// Values between the decades, with a line.
    minor: Vec<f64>,
}

/// What is drawn of a scale, at positions from 0 to 1.
#[derive(Default, Serialize)]
pub struct Axis {
    title: String,
    ticks: Vec<(f64, String)>,
    /// Grid lines without a label.
    minor: Vec<f64>,
}

impl Scale {
    fn new(transform: Transform, ends: [f64; 2], ticks: Vec<f64>) -> Self {
        let minor = Vec::new();
        Self {
            transform,
            ends,
            ticks,
            minor,
        }
    }

    /// Covers all values between round numbers, with up to about `max_ticks` labels. None without a positive value.
    pub fn logarithmic(values: impl Iterator<Item = f64>, max_ticks: usize) -> Option<Self> {
        const MAX_DECADES_WITH_MINOR: f64 = 5.5;
        let [least, most] = ends(values.filter(|&value| value > 0.0))?;
        let (from, to) = (round_down(least), round_up(most));
        let to = if to > from { to } else { round_up(from * 1.01) };
        let fine = multiples(&[1.0, 2.0, 5.0], from, to);
        let is_short = fine.len() <= max_ticks;
        let has_minor = !is_short && (to / from).log10() <= MAX_DECADES_WITH_MINOR;
        let minor = multiples(&[2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0], from, to);
        let ticks = if is_short {
            fine
        } else {
            multiples(&[1.0], from, to)
        };
        Some(Self {
            minor: if has_minor { minor } else { Vec::new() },
            ..Self::new(Transform::Logarithmic, [from, to], ticks)
        })
    }

    /// Logarithmic, with labels at these values only.
    pub fn logarithmic_at(ticks: &[f64]) -> Option<Self> {
        const MARGIN: f64 = 1.25;
        let [least, most] = ends(ticks.iter().copied().filter(|&tick| tick > 0.0))?;
        let ends = [least / MARGIN, most * MARGIN];
        Some(Self::new(Transform::Logarithmic, ends, ticks.to_vec()))
    }

    /// From 0 to a round number beyond all values.
    pub fn from_zero(values: impl Iterator<Item = f64>) -> Option<Self> {
        const MIN_STEPS: f64 = 2.5;
        let [_, most] = ends(values)?;
        let most = if most > 0.0 { most } else { 1.0 };
        let step = round_down(most / MIN_STEPS);
        let steps = (most / step).ceil() as usize;
        let ticks: Vec<f64> = (0..=steps).map(|number| number as f64 * step).collect();
        Some(Self::new(Transform::Linear, [0.0, ticks[steps]], ticks))
    }

    pub fn shares() -> Self {
        let ticks = vec![0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999];
        Self::new(Transform::Logit, SHARES, ticks)
    }

    /// The axis of this scale. A logarithmic axis is labelled as such.
    pub fn axis(&self, label: &str, format: impl Fn(f64) -> String) -> Axis {
        let place = |tick: &f64| (self.position(*tick), format(*tick));
        Axis {
            title: match self.transform {
                Transform::Linear => label.into(),
                Transform::Logarithmic => format!("{label}, logarithmic"),
                Transform::Logit => format!("{label}, logit scale"),
            },
            ticks: self.ticks.iter().map(place).collect(),
            minor: self.minor.iter().map(|tick| self.position(*tick)).collect(),
        }
    }

    /// 0 at the beginning of the axis, 1 at its end.
    pub fn position(&self, value: f64) -> f64 {
        let transformed = |value: f64| match self.transform {
            Transform::Linear => value,
            Transform::Logarithmic => value.max(f64::MIN_POSITIVE).log10(),
            Transform::Logit => (value / (1.0 - value)).log10(),
        };
        let [from, to] = self.ends.map(transformed);
        let value = transformed(value.clamp(self.ends[0], self.ends[1]));
        ((value - from) / (to - from)).clamp(0.0, 1.0)
    }
}

/// The smallest and the largest value.
fn ends(values: impl Iterator<Item = f64>) -> Option<[f64; 2]> {
    let ends = values
        .filter(|value| value.is_finite())
        .map(|value| [value; 2]);
    ends.reduce(|[least, most], [value, _]| [least.min(value), most.max(value)])
}

const ROUND: [f64; 4] = [1.0, 2.0, 5.0, 10.0];
/// The tolerance for rounding errors.
const TOLERANCE: f64 = 1e-9;

fn round_down(value: f64) -> f64 {
    let decade = 10f64.powf(value.log10().floor());
    let fits = |round: &&f64| **round <= value / decade * (1.0 + TOLERANCE);
    ROUND.iter().rev().find(fits).unwrap_or(&1.0) * decade
}

fn round_up(value: f64) -> f64 {
    let decade = 10f64.powf(value.log10().floor());
    let fits = |round: &&f64| **round >= value / decade * (1.0 - TOLERANCE);
    ROUND.iter().find(fits).unwrap_or(&10.0) * decade
}

fn multiples(steps: &[f64], from: f64, to: f64) -> Vec<f64> {
    let decades = from.log10().floor() as i32..=to.log10().ceil() as i32;
    decades
        .flat_map(|decade| steps.iter().map(move |step| step * 10f64.powi(decade)))
        .filter(|&value| value >= from * (1.0 - TOLERANCE) && value <= to * (1.0 + TOLERANCE))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_follow_the_transform() {
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-6, "{a} {b}");
        let logarithmic = Scale::logarithmic([100.0, 1e6].into_iter(), 7).unwrap();
        near(logarithmic.position(1e4), 0.5);
        assert_eq!(logarithmic.minor.len(), 4 * 8);
        let linear = Scale::from_zero([170.0].into_iter()).unwrap();
        near(linear.position(100.0), linear.position(50.0) * 2.0);
        let shares = Scale::shares();
        assert!(shares.position(0.99) - shares.position(0.9) > 0.1);
        near(shares.position(0.0) + 1.0, shares.position(1.0));
    }

    #[test]
    fn ticks_are_round_and_few() {
        for (values, expected) in [
            ([3.0, 40.0], &[2.0, 5.0, 10.0, 20.0, 50.0][..]),
            ([100.0, 1e6], &[1e2, 1e3, 1e4, 1e5, 1e6]),
            ([10.0, 10.0], &[10.0, 20.0]),
        ] {
            let scale = Scale::logarithmic(values.into_iter(), 7).unwrap();
            let ticks: Vec<f64> = scale.ticks.iter().map(|tick| tick.round()).collect();
            assert_eq!(ticks, expected);
        }
        assert!(Scale::logarithmic([0.0].into_iter(), 7).is_none());
    }
}
