// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pseudo-random numbers, the same in every run, and a stream whose bytes identify their position.

use std::ops::RangeInclusive;

/// xorshift64*: small, and sufficient to vary sizes and times.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn within(&mut self, range: RangeInclusive<usize>) -> usize {
        let width = (range.end() - range.start() + 1) as u64;
        range.start() + (self.next() % width) as usize
    }
}

/// The byte at `position` of stream number `stream`. Nearby pieces differ, so lost, repeated and swapped pieces are
/// detected.
pub fn stream_byte(stream: u64, position: u64) -> u8 {
    let mixed = (position ^ stream.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as u8
}

pub fn stream_bytes(stream: u64, start: u64, count: usize) -> Vec<u8> {
    (start..start + count as u64)
        .map(|position| stream_byte(stream, position))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_within_their_range() {
        let mut random = Random::new(7);
        let seen: Vec<usize> = (0..1000).map(|_| random.within(3..=5)).collect();
        assert!((3..=5).all(|value| seen.contains(&value)));
        assert!(seen.iter().all(|value| (3..=5).contains(value)));
    }

    #[test]
    fn a_seed_gives_the_same_numbers_again() {
        let (mut one, mut other) = (Random::new(1), Random::new(1));
        assert!((0..100).all(|_| one.next() == other.next()));
    }

    #[test]
    fn a_piece_of_a_stream_does_not_repeat_nearby() {
        let piece = stream_bytes(1, 5000, 64);
        assert!((0..10_000).all(|start| start == 5000 || stream_bytes(1, start, 64) != piece));
        assert_ne!(stream_bytes(2, 5000, 64), piece);
    }
}
