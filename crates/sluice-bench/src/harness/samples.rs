// SPDX-License-Identifier: MIT OR Apache-2.0
//! Statistics over all samples.

use serde::{Deserialize, Serialize};

/// The distribution of a set of samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub n: usize,
    pub min: u64,
    pub mean: f64,
    pub sd: f64,
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub p999: u64,
    pub max: u64,
}

/// None without samples.
pub fn summarize(mut samples: Vec<u64>) -> Option<Summary> {
    samples.sort_unstable();
    let (min, max) = (*samples.first()?, *samples.last()?);
    let mean = samples.iter().map(|&sample| sample as f64).sum::<f64>() / samples.len() as f64;
    Some(Summary {
        n: samples.len(),
        min,
        mean,
        sd: standard_deviation(&samples, mean),
        p50: percentile(&samples, 500),
        p90: percentile(&samples, 900),
        p99: percentile(&samples, 990),
        p999: percentile(&samples, 999),
        max,
    })
}

/// The distribution function in steps for a plot: each sample value with the share of samples that do not exceed it,
/// with smaller steps towards the largest. None without samples.
pub fn distribution_function(mut samples: Vec<u64>) -> Option<Vec<(u64, f64)>> {
    samples.sort_unstable();
    let n = samples.len();
    let mut steps = vec![(*samples.first()?, 1.0 / n as f64)];
    // Each step passes a twentieth of the samples that remain.
    let mut above = n;
    while above > 0 {
        above -= above.div_ceil(20);
        let step = (samples[n - above - 1], (n - above) as f64 / n as f64);
        if step.0 == steps[steps.len() - 1].0 {
            steps.pop();
        }
        steps.push(step);
    }
    Some(steps)
}

/// The sample standard deviation (n - 1); 0 for a single sample.
fn standard_deviation(samples: &[u64], mean: f64) -> f64 {
    if samples.len() < 2 {
        return 0.0;
    }
    let squares: f64 = samples
        .iter()
        .map(|&sample| (sample as f64 - mean).powi(2))
        .sum();
    (squares / (samples.len() - 1) as f64).sqrt()
}

/// The nearest-rank percentile: the smallest sample that at least this many thousandths of all samples do not exceed.
fn percentile(sorted: &[u64], thousandths: usize) -> u64 {
    let rank = (sorted.len() * thousandths).div_ceil(1000);
    sorted[rank.max(1) - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition of a percentile, by counting.
    fn reference_percentile(samples: &[u64], thousandths: usize) -> u64 {
        let mut candidates = samples.to_vec();
        candidates.sort_unstable();
        *candidates
            .iter()
            .find(|&&candidate| {
                let at_most = samples
                    .iter()
                    .filter(|&&sample| sample <= candidate)
                    .count();
                at_most * 1000 >= samples.len() * thousandths
            })
            .expect("the largest sample always qualifies")
    }

    /// Pseudo-random numbers, the same in every run.
    fn scattered(n: usize) -> Vec<u64> {
        let mut rng = fastrand::Rng::with_seed(1);
        (0..n).map(|_| rng.u64(..5000)).collect()
    }

    #[test]
    fn percentiles_agree_with_their_definition() {
        for n in [1, 2, 3, 9, 10, 99, 100, 101, 999, 1000, 1001, 1237] {
            let samples = scattered(n);
            let summary = summarize(samples.clone()).unwrap();
            assert_eq!(summary.p50, reference_percentile(&samples, 500), "n {n}");
            assert_eq!(summary.p90, reference_percentile(&samples, 900), "n {n}");
            assert_eq!(summary.p99, reference_percentile(&samples, 990), "n {n}");
            assert_eq!(summary.p999, reference_percentile(&samples, 999), "n {n}");
        }
    }

    #[test]
    fn the_distribution_function_rises_from_the_smallest_to_the_largest() {
        let samples = scattered(20_000);
        let steps = distribution_function(samples.clone()).unwrap();
        assert!(steps.len() < 400, "{} steps", steps.len());
        for (value, share) in &steps[1..] {
            let at_most = samples.iter().filter(|&sample| sample <= value).count();
            let exact = at_most as f64 / samples.len() as f64;
            assert!(share - exact <= 0.0 && exact - share < 0.001, "{value}");
        }
        assert!(
            steps
                .windows(2)
                .all(|two| two[0].0 < two[1].0 && two[0].1 < two[1].1)
        );
        assert_eq!(steps.last().unwrap().1, 1.0);
        assert_eq!(distribution_function(vec![7, 7, 7]), Some(vec![(7, 1.0)]));
        assert_eq!(distribution_function(Vec::new()), None);
    }

    #[test]
    fn no_sample_has_no_summary() {
        assert_eq!(summarize(Vec::new()), None);
    }

    #[test]
    fn one_sample_is_every_figure() {
        let summary = summarize(vec![42]).unwrap();
        let expected = Summary {
            n: 1,
            min: 42,
            mean: 42.0,
            sd: 0.0,
            p50: 42,
            p90: 42,
            p99: 42,
            p999: 42,
            max: 42,
        };
        assert_eq!(summary, expected);
    }

    #[test]
    fn mean_and_deviation_of_known_samples() {
        let summary = summarize(vec![
            9, 2, 5, 4, 12, 7, 8, 11, 9, 3, 7, 4, 12, 5, 4, 10, 9, 6, 9, 4,
        ])
        .unwrap();
        assert_eq!(summary.mean, 7.0);
        assert!((summary.sd - 3.060_787).abs() < 1e-5, "{}", summary.sd);
        assert_eq!((summary.min, summary.max), (2, 12));
    }
}
