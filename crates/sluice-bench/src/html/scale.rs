// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a value lies on an axis, and what is written beside it.

/// The smallest and the largest share of samples that a distribution shows.
pub const SHARES: [f64; 2] = [0.01, 0.9999];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Stretch {
    Even,
    Logarithmic,
    /// Towards both ends: as far from 99 % to 99.9 % as from there to 99.99 %.
    Share,
}

#[derive(Clone, Debug)]
pub struct Scale {
    stretch: Stretch,
    from: f64,
    to: f64,
    /// What has a label.
    pub ticks: Vec<f64>,
}

impl Scale {
    /// Between round numbers that enclose all of these, with about as many labels as there is room for. None without a
    /// positive value.
    pub fn logarithmic(values: impl Iterator<Item = f64>, room: usize) -> Option<Self> {
        let (least, most) = ends(values.filter(|&value| value > 0.0))?;
        let (from, to) = (round_down(least), round_up(most));
        let to = if to > from { to } else { round_up(from * 1.01) };
        let fine = multiples(&[1.0, 2.0, 5.0], from, to);
        Some(Self {
            stretch: Stretch::Logarithmic,
            from,
            to,
            ticks: match fine.len() <= room {
                true => fine,
                false => multiples(&[1.0], from, to),
            },
        })
    }

    /// Logarithmic, with labels at these and nowhere else.
    pub fn logarithmic_at(ticks: &[f64]) -> Option<Self> {
        let (least, most) = ends(ticks.iter().copied().filter(|&tick| tick > 0.0))?;
        const MARGIN: f64 = 1.25;
        Some(Self {
            stretch: Stretch::Logarithmic,
            from: least / MARGIN,
            to: most * MARGIN,
            ticks: ticks.to_vec(),
        })
    }

    /// From 0 to a round number beyond all of these.
    pub fn from_zero(values: impl Iterator<Item = f64>) -> Option<Self> {
        let (_, most) = ends(values)?;
        let most = if most > 0.0 { most } else { 1.0 };
        const FEWEST_STEPS: f64 = 2.5;
        let step = round_down(most / FEWEST_STEPS);
        let steps = (most / step).ceil() as usize;
        Some(Self {
            stretch: Stretch::Even,
            from: 0.0,
            to: steps as f64 * step,
            ticks: (0..=steps).map(|number| number as f64 * step).collect(),
        })
    }

    pub fn counted(most: usize) -> Self {
        Self {
            stretch: Stretch::Even,
            from: -0.25,
            to: most as f64 + 0.25,
            ticks: (0..=most).map(|number| number as f64).collect(),
        }
    }

    pub fn shares() -> Self {
        Self {
            stretch: Stretch::Share,
            from: SHARES[0],
            to: SHARES[1],
            ticks: vec![0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999],
        }
    }

    pub fn is_logarithmic(&self) -> bool {
        self.stretch == Stretch::Logarithmic
    }

    /// 0 at the beginning of the axis, 1 at its end.
    pub fn position(&self, value: f64) -> f64 {
        let along = |value: f64| match self.stretch {
            Stretch::Even => value,
            Stretch::Logarithmic => value.max(f64::MIN_POSITIVE).log10(),
            Stretch::Share => (value / (1.0 - value)).log10(),
        };
        let (from, to) = (along(self.from), along(self.to));
        ((along(value.clamp(self.from, self.to)) - from) / (to - from)).clamp(0.0, 1.0)
    }

    /// Lines without a label between those that have one.
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
/// What the last bit of a division may cost.
const NEARLY: f64 = 1e-9;

fn round_down(value: f64) -> f64 {
    let decade = 10f64.powf(value.log10().floor());
    let fits = |round: &&f64| **round <= value / decade * (1.0 + NEARLY);
    ROUND.iter().rev().find(fits).unwrap_or(&1.0) * decade
}

fn round_up(value: f64) -> f64 {
    let decade = 10f64.powf(value.log10().floor());
    let fits = |round: &&f64| **round >= value / decade * (1.0 - NEARLY);
    ROUND.iter().find(fits).unwrap_or(&10.0) * decade
}

fn multiples(steps: &[f64], from: f64, to: f64) -> Vec<f64> {
    let decades = from.log10().floor() as i32..=to.log10().ceil() as i32;
    decades
        .flat_map(|decade| steps.iter().map(move |step| step * 10f64.powi(decade)))
        .filter(|&value| value >= from * (1.0 - NEARLY) && value <= to * (1.0 + NEARLY))
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
    fn what_begins_at_zero_is_true_to_length() {
        let scale = Scale::from_zero([170.0].into_iter()).unwrap();
        assert!(near(scale.position(0.0), 0.0));
        assert!(near(scale.position(100.0), scale.position(50.0) * 2.0));
        assert!(scale.ticks.contains(&100.0) && scale.position(170.0) < 1.0);
    }

    #[test]
    fn shares_are_stretched_towards_both_ends() {
        let scale = Scale::shares();
        assert!(scale.position(0.99) - scale.position(0.9) > 0.1);
        assert!(near(scale.position(0.0), 0.0) && near(scale.position(1.0), 1.0));
    }
}
