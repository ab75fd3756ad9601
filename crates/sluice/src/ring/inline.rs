// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the inline functions of the C library need of a side, beside the positions that the side begins with. They are in
//! bindings/c/src/ring/inline.h; the C library calls the methods here before and after them.

use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use sluice_ring::Memory as _;

use super::consumer::Consumer;
use super::producer::Producer;

/// Addresses that are valid as long as the side, for functions that are inlined into other programs.
#[doc(hidden)]
#[derive(Debug)]
#[repr(C)]
pub struct InlineAddresses {
    /// The bytes of the records, mapped twice in a row.
    pub data: NonNull<u8>,
    /// The capacity - 1.
    pub mask: u64,
    /// The word that has the mark in the process that has set up the side, and in no other one.
    pub process: *const AtomicU64,
    pub mark: u64,
    /// The own position, which the peer loads.
    pub pos: *const AtomicU64,
    /// If this word is not 0, the library has to be called: to wake the producer after a release; to tell why nothing can be sent.
    pub attention: *const AtomicU32,
}

impl InlineAddresses {
    /// The word `attention` of a side that needs a call each time.
    pub const ALWAYS: *const AtomicU32 = {
        static WORD: AtomicU32 = AtomicU32::new(1);
        &raw const WORD
    };
}

impl Producer {
    /// Where the fields of sluice_ring::Producer are, whose first ones have a layout.
    #[doc(hidden)]
    pub const POSITIONS: usize = offset_of!(Self, core);

    #[doc(hidden)]
    pub fn inline_addresses(&self) -> InlineAddresses {
        let attention = self.attention();
        self.connection.inline_addresses(attention)
    }

    /// Where it is not 0 if the consumer has ended, as far as known without a system call.
    #[doc(hidden)]
    #[inline]
    pub fn attention(&self) -> *const AtomicU32 {
        match self.connection.is_hung_up() {
            false => &raw const self.core.memory().consumer().closed,
            true => InlineAddresses::ALWAYS,
        }
    }

    /// Where it is not 0 if the consumer may sleep. A load after the publication suffices, without a barrier.
    #[doc(hidden)]
    #[inline]
    pub fn waiting(&self) -> *const AtomicU32 {
        match self.connection.notifier.is_asymmetric() {
            true => &raw const self.core.memory().consumer().wait_flags,
            false => InlineAddresses::ALWAYS,
        }
    }

    /// Counts records that were sent without the library.
    #[doc(hidden)]
    #[inline]
    pub fn note_inlined(&mut self, records: u64) {
        self.connection.backoff.note_progress(records);
    }
}

impl Consumer {
    /// Where the fields of sluice_ring::Consumer are, whose first ones have a layout.
    #[doc(hidden)]
    pub const POSITIONS: usize = offset_of!(Self, core);

    #[doc(hidden)]
    pub fn inline_addresses(&self) -> InlineAddresses {
        let attention = self.attention();
        self.connection.inline_addresses(attention)
    }

    /// Where it is not 0 if the producer may sleep. A load after the release suffices, without a barrier.
    #[doc(hidden)]
    #[inline]
    pub fn attention(&self) -> *const AtomicU32 {
        match self.connection.notifier.is_asymmetric() {
            true => &raw const self.core.memory().producer().wait_flags,
            false => InlineAddresses::ALWAYS,
        }
    }

    /// Counts records that were received without the library.
    #[doc(hidden)]
    #[inline]
    pub fn note_inlined(&mut self, records: u64) {
        self.connection.backoff.note_progress(records);
    }
}
