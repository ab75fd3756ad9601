// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lengths: of a ring, of a record, of what lies between.

use std::fmt;

use sluice_abi::ring;

/// Bytes before each record.
pub const HEADER: u64 = size_of::<ring::Header>() as u64;

/// What two processors pass to each other at once.
pub const LINE: u64 = 64;

/// How far a record of so many bytes takes its side: header, bytes and padding.
#[inline]
pub const fn step(length: u32) -> u64 {
    (HEADER + length as u64).next_multiple_of(HEADER)
}

/// The bytes of a ring's data: a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity(u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a ring cannot have a capacity of {0} bytes; it can have from {least} bytes to {most} bytes",
    least = Capacity::LEAST, most = Capacity::MOST
)]
pub struct WrongCapacity(pub u64);

impl Capacity {
    pub const LEAST: Self = Self(ring::CAPACITY_MIN);
    pub const MOST: Self = Self(ring::CAPACITY_MAX);

    /// The smallest that holds so many bytes.
    pub fn holding(bytes: u64) -> Result<Self, WrongCapacity> {
        match bytes {
            0 => Err(WrongCapacity(bytes)),
            _ if bytes > Self::MOST.0 => Err(WrongCapacity(bytes)),
            _ => Ok(Self(bytes.next_power_of_two().max(Self::LEAST.0))),
        }
    }

    /// Exactly so many, as the other side says that it has.
    pub fn exactly(bytes: u64) -> Result<Self, WrongCapacity> {
        match Self::holding(bytes) {
            Ok(capacity) if capacity.0 == bytes => Ok(capacity),
            _ => Err(WrongCapacity(bytes)),
        }
    }

    /// Small enough that loom can try everything.
    #[cfg(sluice_loom)]
    pub fn tiny(bytes: u64) -> Self {
        Self(bytes)
    }

    #[inline]
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// Of the longest record: with its header it takes half of the ring.
    #[inline]
    pub const fn longest(self) -> u32 {
        (self.0 / 2 - HEADER) as u32
    }
}

impl fmt::Display for Capacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_takes_its_header_and_whole_words() {
        assert_eq!(
            [0, 1, 8, 9, 56].map(step),
            [8, 16, 16, 24, 64],
            "header included"
        );
        assert_eq!(step(u32::MAX), (1 << 32) + 8, "it does not overflow");
    }

    #[test]
    fn capacities_are_powers_of_two_within_limits() {
        assert_eq!(Capacity::holding(1), Ok(Capacity::LEAST));
        assert_eq!(Capacity::holding(4097).map(Capacity::bytes), Ok(8192));
        assert_eq!(Capacity::holding(1 << 28), Ok(Capacity::MOST));
        for wrong in [0, (1 << 28) + 1, u64::MAX] {
            assert_eq!(Capacity::holding(wrong), Err(WrongCapacity(wrong)));
        }
        for wrong in [0, 1, 2048, 4097, 12288, 1 << 29, u64::MAX] {
            assert_eq!(Capacity::exactly(wrong), Err(WrongCapacity(wrong)));
        }
        assert_eq!(Capacity::exactly(4096), Ok(Capacity::LEAST));
    }

    #[test]
    fn the_longest_record_takes_half_of_the_ring() {
        assert_eq!(step(Capacity::LEAST.longest()), 2048);
    }
}
