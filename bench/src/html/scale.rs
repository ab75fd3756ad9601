// SPDX-License-Identifier: MIT OR Apache-2.0
//! The position of a value on an axis, and its tick labels.

/// The range of shares that a distribution shows.
pub const SHARES: [f64; 2] = [0.01, 0.9999];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Transform {
    Linear,
    Logarithmic,
    /// Logit: the distance from 99 % to 99.9 % is that from 99.9 % to 99.99 %.
    Logit,
}

#[derive(Clone, Debug)]
pub struct Scale {
    transform: Transform,
    from: f64,
    to: f64,
    /// The values with a label.
    pub ticks: Vec<f64>,
}

impl Scale {
    /// Covers all values between round numbers, with up to about `max_ticks` labels. None without a positive value.
    pub fn logarithmic(values: impl Iterator<Item = f64>, max_ticks: usize) -> Option<Self> {
        let (least, most) = ends(values.filter(|&value| value > 0.0))?;
        let (from, to) = (round_down(least), round_up(most));
        let to = if to > from { to } else { round_up(from * 1.01) };
        let fine = multiples(&[1.0, 2.0, 5.0], from, to);
        Some(Self {
            transform: Transform::Logarithmic,
            from,
            to,
            ticks: match fine.len() <= max_ticks {
                true => fine,
                false => multiples(&[1.0], from, to),
            },
        })
    }

    /// Logarithmic, with labels at these values only.
    pub fn logarithmic_at(ticks: &[f64]) -> Option<Self> {
        let (least, most) = ends(ticks.iter().copied().filter(|&tick| tick > 0.0))?;
        const MARGIN: f64 = 1.25;
        Some(Self {
            transform: Transform::Logarithmic,
            from: least / MARGIN,
            to: most * MARGIN,
            ticks: ticks.to_vec(),
        })
    }

    /// From 0 to a round number beyond all values.
    pub fn from_zero(values: impl Iterator<Item = f64>) -> Option<Self> {
        let (_, most) = ends(values)?;
        let most = if most > 0.0 { most } else { 1.0 };
        const MIN_STEPS: f64 = 2.5;
        let step = round_down(most / MIN_STEPS);
        let steps = (most / step).ceil() as usize;
        Some(Self {
            transform: Transform::Linear,
            from: 0.0,
            to: steps as f64 * step,
            ticks: (0..=steps).map(|number| number as f64 * step).collect(),
        })
    }

    pub fn counted(most: usize) -> Self {
        Self {
            transform: Transform::Linear,
            from: -0.25,
            to: most as f64 + 0.25,
            ticks: (0..=most).map(|number| number as f64).collect(),
        }
    }

    pub fn shares() -> Self {
        Self {
            transform: Transform::Logit,
            from: SHARES[0],
            to: SHARES[1],
            ticks: vec![0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999],
        }
    }

    pub fn is_logarithmic(&self) -> bool {
        self.transform == Transform::Logarithmic
    }

    /// 0 at the beginning of the axis, 1 at its end.
    pub fn position(&self, value: f64) -> f64 {
        let transformed = |value: f64| match self.transform {
            Transform::Linear => value,
            Transform::Logarithmic => value.max(f64::MIN_POSITIVE).log10(),
            Transform::Logit => (value / (1.0 - value)).log10(),
        };
        let (from, to) = (transformed(self.from), transformed(self.to));
        ((transformed(value.clamp(self.from, self.to)) - from) / (to - from)).clamp(0.0, 1.0)
    }

    /// Grid lines without a label, between those with one.
    pub fn minor_ticks(&self) -> Vec<f64> {
        let decades = (self.to / self.from).log10();
        let are_decades = |pair: &[f64]| (pair[1] / pair[0] - 10.0).abs() < 1e-3;
        let whole = self.ticks.windows(2).all(are_decades);
        if !self.is_logarithmic() || !whole || decades > 5.5 {
            return Vec::new();
        }
        multiples(
            &[2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0],
            self.from,
            self.to,
        )
    }
}

fn ends(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values
        .filter(|value| value.is_finite())
        .fold(None, |ends, value| match ends {
            None => Some((value, value)),
            Some((least, most)) => Some((f64::min(least, value), f64::max(most, value))),
        })
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

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-6
    }

    #[test]
    fn a_logarithmic_axis_gives_each_decade_the_same_length() {
        let scale = Scale::logarithmic([100.0, 1e6].into_iter(), 7).unwrap();
        assert!(near(scale.position(1e4), 0.5));
        assert_eq!(scale.ticks.len(), 5);
        assert!(!scale.minor_ticks().is_empty());
    }

    #[test]
    fn a_short_logarithmic_axis_has_labels_between_the_decades() {
        let scale = Scale::logarithmic([3.0, 40.0].into_iter(), 7).unwrap();
        let labels: Vec<f64> = scale.ticks.iter().map(|tick| tick.round()).collect();
        assert_eq!(labels, [2.0, 5.0, 10.0, 20.0, 50.0]);
    }

    #[test]
    fn one_value_is_enough_for_an_axis_and_none_is_not() {
        let scale = Scale::logarithmic([10.0].into_iter(), 7).unwrap();
        assert!(scale.position(10.0).is_finite() && scale.ticks.len() > 1);
        assert!(Scale::logarithmic([0.0].into_iter(), 7).is_none());
    }

    #[test]
    fn a_linear_axis_is_proportional() {
        let scale = Scale::from_zero([170.0].into_iter()).unwrap();
        assert!(near(scale.position(0.0), 0.0));
        assert!(near(scale.position(100.0), scale.position(50.0) * 2.0));
        assert!(scale.ticks.contains(&100.0) && scale.position(170.0) < 1.0);
    }

    #[test]
    fn shares_are_on_a_logit_scale() {
        let scale = Scale::shares();
        assert!(scale.position(0.99) - scale.position(0.9) > 0.1);
        assert!(near(scale.position(0.0), 0.0) && near(scale.position(1.0), 1.0));
    }
}
