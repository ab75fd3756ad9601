// SPDX-License-Identifier: MIT OR Apache-2.0
//! The capacity of a ring, and the length of a record in it.

use std::fmt;

use sluice_abi::ring;

/// The size of the header before each record.
pub const HEADER: u64 = size_of::<ring::Header>() as u64;

/// The size of a cache line.
pub const LINE: u64 = 64;

/// From the position of a record of `len` bytes to that of the next: header, bytes and padding.
#[inline]
pub const fn record_stride(len: u32) -> u64 {
    // A power of two.
    (HEADER + len as u64 + HEADER - 1) & !(HEADER - 1)
}

/// The capacity of a ring in bytes: a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity(u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a ring cannot have a capacity of {bytes} bytes")]
pub struct InvalidCapacity {
    pub bytes: u64,
    pub min: u64,
}

impl Capacity {
    pub const MIN: Self = Self(ring::CAPACITY_MIN);
    pub const MAX: Self = Self(ring::CAPACITY_MAX);

    /// The smallest capacity with this page size. The data is mapped twice in a row, so it consists of whole pages.
    const fn min_for(page: u64) -> u64 {
        if page > Self::MIN.0 {
            page
        } else {
            Self::MIN.0
        }
    }

    /// The smallest valid capacity of at least `bytes`, with this page size.
    pub fn at_least(bytes: u64, page: u64) -> Result<Self, InvalidCapacity> {
        let min = Self::min_for(page);
        if bytes == 0 || bytes.max(min) > Self::MAX.0 {
            return Err(InvalidCapacity { bytes, min });
        }
        Ok(Self(bytes.max(min).next_power_of_two()))
    }

    /// A capacity of exactly `bytes`, as the peer announces it, with this page size.
    pub fn exactly(bytes: u64, page: u64) -> Result<Self, InvalidCapacity> {
        match Self::at_least(bytes, page) {
            Ok(capacity) if capacity.0 == bytes => Ok(capacity),
            _ => Err(InvalidCapacity {
                bytes,
                min: Self::min_for(page),
            }),
        }
    }

    /// A capacity small enough for loom.
    #[cfg(sluice_loom)]
    pub fn tiny(bytes: u64) -> Self {
        Self(bytes)
    }

    #[inline]
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// The length limit of a record: with its header it occupies half of the ring.
    #[inline]
    pub const fn max_record_len(self) -> u32 {
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

    const PAGE: u64 = 4096;

    #[test]
    fn a_record_takes_its_header_and_whole_words() {
        assert_eq!(
            [0, 1, 8, 9, 56].map(record_stride),
            [8, 16, 16, 24, 64],
            "header included"
        );
        assert_eq!(
            record_stride(u32::MAX),
            (1 << 32) + 8,
            "it does not overflow"
        );
    }

    #[test]
    fn capacities_are_powers_of_two_within_limits() {
        let at_least = |bytes| Capacity::at_least(bytes, PAGE).map(Capacity::bytes);
        assert_eq!(at_least(1), Ok(4096));
        assert_eq!(at_least(4097), Ok(8192));
        assert_eq!(at_least(1 << 28), Ok(1 << 28));
        let min = 4096;
        for bytes in [0, (1 << 28) + 1, u64::MAX] {
            assert_eq!(at_least(bytes), Err(InvalidCapacity { bytes, min }));
        }
        let exactly = |bytes| Capacity::exactly(bytes, PAGE);
        for bytes in [0, 1, 2048, 4097, 12288, 1 << 29, u64::MAX] {
            assert_eq!(exactly(bytes), Err(InvalidCapacity { bytes, min }));
        }
        assert_eq!(exactly(4096), Ok(Capacity::MIN));
    }

    #[test]
    fn a_ring_has_at_least_a_page() {
        for page in [16 << 10, 64 << 10, 2 << 20] {
            assert_eq!(
                Capacity::at_least(4096, page).map(Capacity::bytes),
                Ok(page)
            );
            assert_eq!(
                Capacity::exactly(page / 2, page),
                Err(InvalidCapacity {
                    bytes: page / 2,
                    min: page
                })
            );
            assert!(Capacity::exactly(page, page).is_ok());
        }
        assert!(Capacity::at_least(1, 1 << 30).is_err(), "a page of 1 GiB");
    }

    #[test]
    fn the_longest_record_takes_half_of_the_ring() {
        assert_eq!(record_stride(Capacity::MIN.max_record_len()), 2048);
    }
}
