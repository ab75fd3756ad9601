// SPDX-License-Identifier: MIT OR Apache-2.0
//! The distribution of latencies, recorded by one thread and read by another at any time.

use std::sync::atomic::{AtomicU64, Ordering};

/// A power of two of values is divided into this many buckets, so that a bucket is at most 3 % wide.
const PER_OCTAVE: u64 = 32;
const OCTAVE_BITS: u32 = PER_OCTAVE.trailing_zeros();
const BUCKETS: usize = ((u64::BITS - OCTAVE_BITS + 1) as usize) << OCTAVE_BITS;

/// Counts of values.
pub struct Histogram {
    buckets: Box<[AtomicU64]>,
    max: AtomicU64,
}

/// The recorded values at one moment.
pub struct Snapshot {
    buckets: Vec<u64>,
    total: u64,
    pub max: u64,
}

impl Histogram {
    pub fn new() -> Self {
        Self {
            buckets: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(),
            max: AtomicU64::new(0),
        }
    }

    /// By one thread only: a load and a store are cheaper than an atomic addition.
    pub fn record(&self, value: u64) {
        increment(&self.buckets[bucket(value)]);
        self.max.fetch_max(value, Ordering::Relaxed);
    }

    pub fn snapshot(&self) -> Snapshot {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let buckets: Vec<u64> = self.buckets.iter().map(load).collect();
        Snapshot {
            total: buckets.iter().sum(),
            buckets,
            max: load(&self.max),
        }
    }
}

/// By one thread only.
pub fn increment(count: &AtomicU64) {
    count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

impl Snapshot {
    /// The largest value of the bucket in which the value at this rank is, such as 0.99; none without values.
    pub fn quantile(&self, rank: f64) -> Option<u64> {
        let wanted = ((self.total as f64 * rank).ceil() as u64).max(1);
        let mut seen = 0;
        let found = self.buckets.iter().position(|count| {
            seen += count;
            seen >= wanted
        })?;
        Some(last_of(found).min(self.max))
    }

    /// The octaves from the first to the last with values: the end of each (exclusive), and its count.
    pub fn octaves(&self) -> Vec<(u64, u64)> {
        let octaves = self.buckets.chunks(PER_OCTAVE as usize).enumerate();
        let counts: Vec<(u64, u64)> = octaves
            .map(|(octave, counts)| {
                let last = last_of((octave + 1) * PER_OCTAVE as usize - 1);
                (last.saturating_add(1), counts.iter().sum())
            })
            .collect();
        let is_used = |(_, count): &(u64, u64)| *count > 0;
        match (
            counts.iter().position(is_used),
            counts.iter().rposition(is_used),
        ) {
            (Some(first), Some(last)) => counts[first..=last].to_vec(),
            _ => Vec::new(),
        }
    }
}

/// Values below PER_OCTAVE have a bucket each.
fn bucket(value: u64) -> usize {
    if value < PER_OCTAVE {
        return value as usize;
    }
    let shift = value.ilog2() - OCTAVE_BITS;
    let octave = u64::from(shift) * PER_OCTAVE;
    (octave + (value >> shift)) as usize
}

/// The largest value of a bucket.
fn last_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < PER_OCTAVE {
        return bucket;
    }
    let shift = bucket / PER_OCTAVE - 1;
    let first = (PER_OCTAVE + bucket % PER_OCTAVE) << shift;
    first + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: impl IntoIterator<Item = u64>) -> Snapshot {
        let histogram = Histogram::new();
        values.into_iter().for_each(|value| histogram.record(value));
        histogram.snapshot()
    }

    #[test]
    fn every_value_is_in_the_bucket_that_ends_at_or_after_it() {
        let powers = (0..64).flat_map(|bit| [(1 << bit) - 1, 1_u64 << bit, (1 << bit) + 1]);
        for value in powers.chain([u64::MAX, 31, 32, 33, 63, 64, 1000]) {
            let at = bucket(value);
            assert!(last_of(at) >= value, "{value}");
            assert!(last_of(at) - value <= value / PER_OCTAVE, "{value}");
            assert!(at == 0 || last_of(at - 1) < value, "{value}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_within_a_bucket_and_never_above_the_maximum() {
        let snapshot = of(1..=10_000);
        for (rank, exact) in [(0.5, 5000), (0.99, 9900), (0.999, 9990)] {
            let found = snapshot.quantile(rank).unwrap();
            assert!((exact..=exact + exact / 32).contains(&found), "{found}");
        }
        assert_eq!(snapshot.quantile(1.0), Some(10_000));
        assert_eq!(of([7]).quantile(0.5), Some(7));
        assert_eq!(of([]).quantile(0.5), None);
    }

    #[test]
    fn octaves_span_the_recorded_values() {
        assert_eq!(of([]).octaves(), []);
        assert_eq!(of([3]).octaves(), [(32, 1)]);
        assert_eq!(
            of([100, 127, 128, 600]).octaves(),
            [(128, 2), (256, 1), (512, 0), (1024, 1)]
        );
        assert_eq!(of([u64::MAX]).octaves(), [(u64::MAX, 1)]);
    }
}
