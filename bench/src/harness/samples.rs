// SPDX-License-Identifier: MIT OR Apache-2.0
//! The times of single messages: their percentiles, and how values compare.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use sluice_testkit::spread::Spread;

/// Decimal digits that a sample keeps. Below 2048 ns that is all of them.
const DIGITS: u8 = 3;

/// Times of one round in nanoseconds.
#[derive(Clone, Debug)]
pub struct Samples(Histogram<u32>);

impl Samples {
    fn empty() -> Self {
        let histogram = Histogram::new(DIGITS);
        Self(histogram.expect("the number of digits is valid"))
    }

    pub fn len(&self) -> usize {
        self.0.len() as usize
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The smallest time that at least this share of all samples do not exceed. 0 without samples.
    pub fn percentile(&self, share: f64) -> u64 {
        self.0.value_at_quantile(share)
    }
}

impl FromIterator<u64> for Samples {
    fn from_iter<T: IntoIterator<Item = u64>>(times: T) -> Self {
        let mut samples = Self::empty();
        for time in times {
            // It grows as it needs to.
            let _ = samples.0.record(time);
        }
        samples
    }
}

/// The distribution of the samples of several rounds. A percentile is the median of the percentiles of the rounds.
#[skip_serializing_none]
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub n: usize,
    pub min: u64,
    pub mean: f64,
    pub sd: f64,
    pub p50: u64,
    /// Those below: if each round has enough samples for it.
    pub p90: Option<u64>,
    pub p99: Option<u64>,
    pub p999: Option<u64>,
    pub p9999: Option<u64>,
    pub max: u64,
}

pub fn summarize(rounds: &[&Samples]) -> Option<Summary> {
    let mut all = Samples::empty();
    for round in rounds {
        // It grows as it needs to.
        let _ = all.0.add(&round.0);
    }
    if all.is_empty() {
        return None;
    }
    Some(Summary {
        n: all.len(),
        min: all.0.min(),
        mean: all.0.mean(),
        sd: all.0.stdev(),
        p50: percentile(rounds, 0.5, 1)?,
        // With fewer samples in a round, it is the time of fewer than ten messages.
        p90: percentile(rounds, 0.9, 100),
        p99: percentile(rounds, 0.99, 1_000),
        p999: percentile(rounds, 0.999, 10_000),
        p9999: percentile(rounds, 0.9999, 100_000),
        max: all.0.max(),
    })
}

/// The median of the rounds; None if one of them has fewer samples than this.
fn percentile(rounds: &[&Samples], share: f64, least: usize) -> Option<u64> {
    let is_enough = rounds.iter().all(|round| round.len() >= least);
    let values = rounds.iter().map(|round| round.percentile(share) as f64);
    let spread = Spread::of(&values.collect::<Vec<_>>()).filter(|_| is_enough)?;
    Some(spread.median.round() as u64)
}

/// How a value compares with an earlier one, or with the value of the reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    Faster,
    Slower,
    Tie,
}

impl Change {
    /// Faster or slower only if each round agrees: the range of the ratios does not include 1.
    pub fn of_ratios([min, max]: [f64; 2], less_is_better: bool) -> Self {
        match (max < 1.0, min > 1.0) {
            (true, _) if less_is_better => Self::Faster,
            (true, _) => Self::Slower,
            (_, true) if less_is_better => Self::Slower,
            (_, true) => Self::Faster,
            _ => Self::Tie,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::Tie => "tie",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_definition() {
        for n in [1, 2, 7, 99, 100, 999, 1000, 1999] {
            let mut random = fastrand::Rng::with_seed(1);
            let mut times: Vec<u64> = (0..n).map(|_| random.u64(..2000)).collect();
            let summary = summarize(&[&times.iter().copied().collect()]).unwrap();
            times.sort_unstable();
            let time = |share: usize| times[(n * share).div_ceil(1000) - 1];
            let [p50, p90, p99] = [500, 900, 990].map(time);
            assert_eq!(summary.p50, p50, "{n}");
            assert_eq!(summary.p90, (n >= 100).then_some(p90), "{n}");
            assert_eq!(summary.p99, (n >= 1000).then_some(p99), "{n}");
            assert_eq!((summary.min, summary.max), (times[0], times[n - 1]));
        }
        assert_eq!(summarize(&[&Samples::empty()]), None);
    }

    #[test]
    fn a_percentile_is_the_median_of_the_rounds_and_needs_many_samples_in_each() {
        let rounds = [[10_u64; 100], [30; 100], [20; 100]].map(Samples::from_iter);
        let summary = summarize(&rounds.each_ref()).unwrap();
        assert_eq!((summary.n, summary.p50, summary.p90), (300, 20, Some(20)));
        let [few, many] = [9_999, 10_000].map(|n| Samples::from_iter(0..n));
        assert_eq!(summarize(&[&many, &few]).unwrap().p999, None);
        let summary = summarize(&[&many, &many]).unwrap();
        assert!(summary.p999.is_some() && summary.p9999.is_none());
    }
}
