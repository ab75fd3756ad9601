// SPDX-License-Identifier: MIT OR Apache-2.0

use sluice_abi::ring::RECORD_READY;

use crate::layout::{HEADER, LINE, record_stride};
use crate::memory::Memory;
use crate::sync::{Ordering, fence};
use crate::violation::ProtocolViolation;

/// How far ahead the memory is zeroed: enough that the line of the next record but one is there in time, and little
/// enough that the consumer's prefetcher has not fetched it back by then. Measured: 192 to 384 bytes do equally well.
const WINDOW: u64 = 256;

/// Where the state is in a header.
pub(crate) const STATE: u64 = 4;

/// The side that writes records. See the picture at the top of the crate.
#[derive(Debug)]
pub struct Producer<M> {
    memory: M,
    published: u64,
    written: u64,
    /// Up to where records may be written: a capacity behind what the consumer is known to have released. Zero after a violation:
    /// then no record has room.
    limit: u64,
    zeroed_to: u64,
    /// Where the bytes end that were reserved since the last record was written.
    reserved_end: u64,
    violation: Option<ProtocolViolation>,
}

impl<M: Memory> Producer<M> {
    /// Of a ring that nothing was ever written to.
    pub fn new(memory: M) -> Self {
        Self {
            published: 0,
            written: 0,
            limit: memory.capacity().bytes(),
            zeroed_to: memory.capacity().bytes(),
            reserved_end: 0,
            violation: None,
            memory,
        }
    }

    #[inline]
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Whether a record of so many bytes, at most the longest, can be written now. After a violation it is returned every time.
    #[inline]
    pub fn has_room(&mut self, len: u32) -> Result<bool, ProtocolViolation> {
        // The next state behind it is zeroed before it is published.
        let end = self.written + record_stride(len) + HEADER;
        if end <= self.limit {
            return Ok(true);
        }
        self.refresh_released()?;
        Ok(end <= self.limit)
    }

    /// What the consumer has released.
    fn refresh_released(&mut self) -> Result<u64, ProtocolViolation> {
        if let Some(violation) = self.violation {
            return Err(violation);
        }
        let pos = self.memory.consumer().pos.load(Ordering::Relaxed);
        // Pairs with the release in Consumer::release(): what was read there is not overwritten before it was read.
        fence(Ordering::Acquire);
        let capacity = self.memory.capacity().bytes();
        let (min, max) = (self.limit - capacity, self.published);
        if pos < min || pos > max || pos % HEADER != 0 {
            return Err(self.fail(ProtocolViolation::Released { pos, min, max }));
        }
        self.limit = pos + capacity;
        Ok(pos)
    }

    #[cold]
    fn fail(&mut self, violation: ProtocolViolation) -> ProtocolViolation {
        self.limit = 0;
        *self.violation.get_or_insert(violation)
    }

    /// Where the next record's bytes belong. The caller may fill as many as it has asked room for, whether or not it
    /// writes the record then.
    #[inline]
    pub fn reserve(&mut self, len: u32) -> u64 {
        let bytes = self.written + HEADER;
        self.reserved_end = self.reserved_end.max(bytes + u64::from(len));
        bytes
    }

    /// Makes a record of the bytes that are there. The consumer does not see it yet.
    #[inline]
    pub fn write(&mut self, len: u32) {
        let at = self.written;
        self.memory.word(at).store(len, Ordering::Relaxed);
        if at != self.published {
            // The first of a batch holds the consumer back, and publish() releases this too.
            self.memory
                .word(at + STATE)
                .store(RECORD_READY, Ordering::Relaxed);
        }
        self.written = at + record_stride(len);
        if self.reserved_end > self.written {
            // More was filled than became of the record.
            self.zeroed_to = self.written;
        }
        self.reserved_end = 0;
    }

    #[inline]
    pub fn has_batch(&self) -> bool {
        self.written != self.published
    }

    /// Lets the consumer see what was written. The caller then notifies the consumer, and calls prezero() after that.
    #[inline]
    pub fn publish(&mut self) {
        if !self.has_batch() {
            return;
        }
        if self.zeroed_to < self.written + HEADER {
            self.memory
                .word(self.written + STATE)
                .store(0, Ordering::Relaxed);
            self.zeroed_to = self.written + HEADER;
        }
        // Pairs with the acquire in Consumer::peek(): whoever sees this state sees the bytes, the whole batch, and the zero
        // where the next record will begin.
        self.memory
            .word(self.published + STATE)
            .store(RECORD_READY, Ordering::Release);
        self.published = self.written;
        // Only a hint of how much there is, so that relaxed order suffices.
        self.memory
            .producer()
            .pos
            .store(self.written, Ordering::Relaxed);
    }

    /// Zeroes ahead while the record is on its way.
    #[inline]
    pub fn prezero(&mut self) {
        // By whole lines.
        let goal = ((self.written + WINDOW) & !(LINE - 1)).min(self.limit);
        if goal > self.zeroed_to {
            self.memory.zero(self.zeroed_to, goal);
            self.zeroed_to = goal;
        }
    }

    /// Bytes, headers included, that are published and not known to be released.
    pub fn pending(&mut self) -> Result<u64, ProtocolViolation> {
        Ok(self.published - self.refresh_released()?)
    }
}
