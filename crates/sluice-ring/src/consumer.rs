// SPDX-License-Identifier: MIT OR Apache-2.0

use std::cmp::Ordering::{Equal, Greater, Less};
use std::mem::offset_of;

use sluice_abi::ring::RECORD_READY;

use crate::layout::{HEADER, LINE, record_stride};
use crate::memory::Memory;
use crate::producer::STATE;
use crate::sync::{Ordering, fence};
use crate::violation::ProtocolViolation;

/// About 0.1 µs. Measured: with an immediate prefetch, the median latency of 64-byte records every 200 ns is a fifth higher. With
/// seven polls, round trips of 64 bytes between processors with a common cache take a tenth longer.
const POLLS_BEFORE_PREFETCH: u32 = 2;

/// The receiving side. See the diagram at the top of the crate.
///
/// Functions of the C library that are inlined into programs receive and release by the fields before `memory`, whose layout is part of its
/// ABI.
#[derive(Debug)]
#[repr(C)]
pub struct Consumer<M> {
    /// The position of the next record.
    position: u64,
    released: u64,
    /// The length limit. Negative after a violation, so that every record exceeds it.
    max_len: i64,
    memory: M,
    violation: Option<ProtocolViolation>,
}

const _: () = {
    assert!(offset_of!(Consumer<()>, position) == 0);
    assert!(offset_of!(Consumer<()>, released) == 8);
    assert!(offset_of!(Consumer<()>, max_len) == 16);
};

impl<M: Memory> Consumer<M> {
    /// `memory` must be that of a new ring.
    pub fn new(memory: M) -> Self {
        Self {
            max_len: memory.capacity().max_record_len().into(),
            memory,
            position: 0,
            released: 0,
            violation: None,
        }
    }

    #[inline]
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Whether there is a record, or an invalid state. Relaxed suffices: peek() loads the state again with acquire.
    #[inline]
    pub fn has_record(&self) -> bool {
        self.memory
            .word(self.position + STATE)
            .load(Ordering::Relaxed)
            != 0
    }

    /// As has_record(), during a wait, after this number of failed polls. Most records end in the cache line after that of
    /// the header; a prefetch transfers both concurrently. In a stream the producer is about to write that line and would
    /// have to transfer it back. It is loaded first: processors may ignore a prefetch from a page whose translation they do
    /// not have, and emulators ignore all, so that a record which crosses a page boundary would wait for the translation.
    #[inline]
    pub fn poll(&self, polls: u32) -> bool {
        match polls.cmp(&POLLS_BEFORE_PREFETCH) {
            Less => {}
            Equal => self.memory.touch(self.position + LINE),
            Greater => self.memory.prefetch(self.position + LINE),
        }
        self.has_record()
    }

    /// The length of the next record, if there is one. It is loaded once: whatever the producer stores later, this many
    /// bytes are within the ring. After a violation every call returns the violation.
    #[inline]
    pub fn peek(&mut self) -> Result<Option<u32>, ProtocolViolation> {
        let at = self.position;
        match self.memory.word(at + STATE).load(Ordering::Relaxed) {
            RECORD_READY => {
                // Pairs with the release in Producer::publish().
                fence(Ordering::Acquire);
                let len = self.memory.word(at).load(Ordering::Relaxed);
                if i64::from(len) > self.max_len {
                    let max = self.memory.capacity().max_record_len();
                    return Err(self.fail(ProtocolViolation::Length { at, len, max }));
                }
                Ok(Some(len))
            }
            0 => self.violation.map_or(Ok(None), Err),
            state => Err(self.fail(ProtocolViolation::State { at, state })),
        }
    }

    /// As peek(), with unreleased records. They are at most the capacity, so a loop over all available records ends.
    #[inline]
    pub fn peek_more(&mut self) -> Result<Option<u32>, ProtocolViolation> {
        let Some(len) = self.peek()? else {
            return Ok(None);
        };
        let end = self.position + record_stride(len);
        let (released, capacity) = (self.released, self.memory.capacity().bytes());
        // The producer keeps room for the state after the record.
        if end + HEADER - released > capacity {
            return Err(self.fail(ProtocolViolation::TooMany {
                end,
                released,
                capacity,
            }));
        }
        Ok(Some(len))
    }

    /// Stores and returns the first violation, which every later call returns.
    #[cold]
    #[inline(never)]
    pub fn fail(&mut self, violation: ProtocolViolation) -> ProtocolViolation {
        self.max_len = -1;
        *self.violation.get_or_insert(violation)
    }

    /// The position of the bytes of the record that peek() found.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.position + HEADER
    }

    /// Steps over the record of this length. Its bytes stay until they are released.
    #[inline]
    pub fn advance(&mut self, len: u32) {
        self.position += record_stride(len);
    }

    #[inline]
    pub fn has_unreleased(&self) -> bool {
        self.position != self.released
    }

    /// Steps back to the oldest unreleased record, which is the next one again.
    #[inline]
    pub fn rewind(&mut self) {
        self.position = self.released;
    }

    /// Releases all records that were stepped over. The caller then notifies the producer.
    #[inline]
    pub fn release(&mut self) {
        self.released = self.position;
        // Pairs with the acquire in Producer::refresh_released().
        self.memory
            .consumer()
            .pos
            .store(self.position, Ordering::Release);
    }

    /// Bytes, including headers, that the producer reports as published and that were not stepped over yet. Only a hint.
    pub fn pending(&self) -> u64 {
        let published = self.memory.producer().pos.load(Ordering::Relaxed);
        published
            .saturating_sub(self.position)
            .min(self.memory.capacity().bytes())
    }
}
