// SPDX-License-Identifier: MIT OR Apache-2.0

use sluice_abi::ring::RECORD_READY;

use crate::layout::{HEADER, LINE, record_stride};
use crate::memory::Memory;
use crate::producer::STATE;
use crate::sync::{Ordering, fence};
use crate::violation::ProtocolViolation;

/// About 0.4 µs. Measured: with a prefetch at once, 64-byte records every 200 ns are received a fifth later in the median.
const POLLS_BEFORE_PREFETCH: u32 = 7;

/// The side that reads records. See the picture at the top of the crate.
#[derive(Debug)]
pub struct Consumer<M> {
    memory: M,
    /// Of the next record.
    position: u64,
    released: u64,
    /// Negative after a violation: then no record passes the check that every record has to pass.
    max_len: i64,
    violation: Option<ProtocolViolation>,
}

impl<M: Memory> Consumer<M> {
    /// Of a ring that nothing was ever taken from.
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

    /// Whether there is a record, or something that should not be there. Relaxed order suffices: peek() decides.
    #[inline]
    pub fn has_record(&self) -> bool {
        self.memory
            .word(self.position + STATE)
            .load(Ordering::Relaxed)
            != 0
    }

    /// As has_record(), while waiting, after this number of failed polls. Most records end in the cache line behind their header's, which a
    /// prefetch has come over at the same time, not after it. Where records follow each other closely, the producer is about to write
    /// to that line, and would have to take it back.
    #[inline]
    pub fn poll(&self, polls: u32) -> bool {
        if polls >= POLLS_BEFORE_PREFETCH {
            self.memory.prefetch(self.position + LINE);
        }
        self.has_record()
    }

    /// The length of the next record, if there is one. It is loaded once: whatever the producer stores there later, this many bytes
    /// are within the ring. After a violation it is returned every time.
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

    /// As peek(), while records are taken that are not released yet. There cannot be more than the ring holds, so a loop over all
    /// that is there ends.
    #[inline]
    pub fn peek_more(&mut self) -> Result<Option<u32>, ProtocolViolation> {
        let Some(len) = self.peek()? else {
            return Ok(None);
        };
        let end = self.position + record_stride(len);
        let (released, capacity) = (self.released, self.memory.capacity().bytes());
        // The producer keeps room for the state behind it.
        if end + HEADER - released > capacity {
            return Err(self.fail(ProtocolViolation::TooMany {
                end,
                released,
                capacity,
            }));
        }
        Ok(Some(len))
    }

    /// Only the first violation counts.
    #[cold]
    fn fail(&mut self, violation: ProtocolViolation) -> ProtocolViolation {
        self.max_len = -1;
        *self.violation.get_or_insert(violation)
    }

    /// Where the bytes are of the record that peek() found.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.position + HEADER
    }

    /// Goes on to the record after the one of this length. Its bytes stay until they are released.
    #[inline]
    pub fn advance(&mut self, len: u32) {
        self.position += record_stride(len);
    }

    pub fn has_unreleased(&self) -> bool {
        self.position != self.released
    }

    /// Gives back everything that was taken. The caller then notifies the producer.
    #[inline]
    pub fn release(&mut self) {
        self.released = self.position;
        // Pairs with the acquire in Producer::refresh_released().
        self.memory
            .consumer()
            .pos
            .store(self.position, Ordering::Release);
    }

    /// Bytes, headers included, that the producer says to have published and that were not taken yet. It is only a hint.
    pub fn pending(&self) -> u64 {
        let published = self.memory.producer().pos.load(Ordering::Relaxed);
        published
            .saturating_sub(self.position)
            .min(self.memory.capacity().bytes())
    }
}
