// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bytes of records, which each peer computes.

use std::sync::LazyLock;

/// Long and without a period, so that a byte identifies its place and its record.
static TABLE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    (0..1_u64 << 18)
        .map(|place| ((place * 2_654_435_761) >> 16) as u8)
        .collect()
});

/// The bytes of the record with this number, from 0, of this ring.
pub fn record(number: usize, length: usize) -> &'static [u8] {
    let start = number * 17 % 8191;
    &TABLE[start..start + length]
}

/// The table, again and again, up to this length.
pub fn repeated(length: usize) -> Vec<u8> {
    TABLE.iter().copied().cycle().take(length).collect()
}

/// The length of a record of a stream. It takes every value from 0 to the maximum before it repeats one, because the factor is prime.
pub fn length(number: usize, longest: usize) -> usize {
    number * 7919 % (longest + 1)
}
