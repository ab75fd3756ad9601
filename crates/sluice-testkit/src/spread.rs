// SPDX-License-Identifier: MIT OR Apache-2.0
//! The middle and the range of a few values, one per round.

use serde::{Deserialize, Serialize};

/// The median, the smallest and the largest of one value per round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    /// None without rounds.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            (sorted[middle - 1] + sorted[middle]) / 2.0
        };
        Some(Self { median, min, max })
    }

    /// The ratio within each round, which cancels disturbances of both.
    pub fn of_ratios(ours: &[f64], theirs: &[f64]) -> Option<Self> {
        let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(a, b)| a / b).collect();
        Self::of(&ratios)
    }

    /// False if all rounds of one are below all rounds of the other; only then is one called better.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.min <= other.max && other.min <= self.max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_round_has_no_spread() {
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(Spread::of_ratios(&[], &[]), None);
    }

    #[test]
    fn the_median_of_an_even_number_of_rounds_lies_between_the_middle_two() {
        let spread = Spread::of(&[4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!(
            spread,
            Spread {
                median: 2.5,
                min: 1.0,
                max: 4.0
            }
        );
    }

    #[test]
    fn ratios_are_taken_within_each_round() {
        let spread = Spread::of_ratios(&[2.0, 30.0, 8.0], &[1.0, 10.0, 2.0]).unwrap();
        assert_eq!(
            spread,
            Spread {
                median: 3.0,
                min: 2.0,
                max: 4.0
            }
        );
    }

    #[test]
    fn rounds_that_touch_overlap() {
        let low = Spread::of(&[1.0, 2.0]).unwrap();
        let touching = Spread::of(&[2.0, 3.0]).unwrap();
        let disjoint = Spread::of(&[2.1, 3.0]).unwrap();
        assert!(low.overlaps(&touching) && touching.overlaps(&low));
        assert!(!low.overlaps(&disjoint) && !disjoint.overlaps(&low));
    }
}
