// SPDX-License-Identifier: MIT OR Apache-2.0
//! The beginning of both sides, for the functions of inline.h, which programs inline.

use std::mem::{self, offset_of};
use std::sync::atomic::AtomicU32;

use sluice::ring::InlineAddresses;

/// struct sluice_ring_head of inline.h.
#[repr(C)]
pub struct Inlined {
    addresses: InlineAddresses,
    /// The number of records that were sent or received since the last call that counted them.
    records: u64,
}

const _: () = {
    assert!(offset_of!(Inlined, addresses.data) == 0);
    assert!(offset_of!(Inlined, addresses.mask) == 8);
    assert!(offset_of!(Inlined, addresses.process) == 16);
    assert!(offset_of!(Inlined, addresses.mark) == 24);
    assert!(offset_of!(Inlined, addresses.pos) == 32);
    assert!(offset_of!(Inlined, addresses.attention) == 40);
    assert!(offset_of!(Inlined, records) == 48);
    assert!(size_of::<Inlined>() == 56);
};

impl Inlined {
    pub fn new(addresses: InlineAddresses) -> Self {
        Self {
            addresses,
            records: 0,
        }
    }

    /// The records that nothing has counted yet, if there are some.
    #[inline]
    pub fn take_records(&mut self) -> Option<u64> {
        (self.records != 0).then(|| mem::take(&mut self.records))
    }

    #[inline]
    pub fn attend_to(&mut self, word: *const AtomicU32) {
        self.addresses.attention = word;
    }
}
