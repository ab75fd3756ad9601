// SPDX-License-Identifier: MIT OR Apache-2.0

use std::mem::offset_of;

use sluice_abi::ring::RECORD_READY;

use crate::layout::{HEADER, LINE, record_stride};
use crate::memory::Memory;
use crate::sync::{Ordering, fence};
use crate::violation::ProtocolViolation;

/// The number of bytes zeroed ahead: enough to own the line of the record after the next in time, and too few for the
/// consumer's prefetcher to fetch it back by then. Measured: 192 to 384 bytes are equally fast.
const WINDOW: u64 = 256;

/// The offset of the state in a header.
pub(crate) const STATE: u64 = 4;

/// The sending side. See the diagram at the top of the crate.
///
/// Functions of the C library that are inlined into programs reserve, write and publish by the fields before `memory`, whose layout is part
/// of its ABI.
#[derive(Debug)]
#[repr(C)]
pub struct Producer<M> {
    published: u64,
    written: u64,
    /// Records may be written up to here: one capacity after the last known position of the consumer. Zero after a
    /// violation, so that no record has room.
    limit: u64,
    /// The end of the bytes reserved since the last record was written, or 0.
    reserved_end: u64,
    /// The number of bytes to zero after the publication.
    window: u64,
    zeroed_to: u64,
    memory: M,
    violation: Option<ProtocolViolation>,
}

const _: () = {
    assert!(offset_of!(Producer<()>, published) == 0);
    assert!(offset_of!(Producer<()>, written) == 8);
    assert!(offset_of!(Producer<()>, limit) == 16);
    assert!(offset_of!(Producer<()>, reserved_end) == 24);
    assert!(offset_of!(Producer<()>, window) == 32);
    assert!(offset_of!(Producer<()>, zeroed_to) == 40);
};

impl<M: Memory> Producer<M> {
    /// `memory` must be that of a new ring.
    pub fn new(memory: M) -> Self {
        Self {
            published: 0,
            written: 0,
            window: WINDOW,
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

    /// Whether a record of `len` bytes, at most the longest, can be written now. After a violation every call returns the
    /// violation.
    #[inline]
    pub fn has_room(&mut self, len: u32) -> Result<bool, ProtocolViolation> {
        if self.has_known_room(len) {
            return Ok(true);
        }
        self.refresh_released()?;
        Ok(self.has_known_room(len))
    }

    /// As has_room(), by the last known position of the consumer. False after a violation.
    #[inline]
    pub fn has_known_room(&self, len: u32) -> bool {
        // Includes the state after the record, which is zeroed before the publication.
        self.written + record_stride(len) + HEADER <= self.limit
    }

    /// Loads and validates the position up to which the consumer has released.
    fn refresh_released(&mut self) -> Result<u64, ProtocolViolation> {
        if let Some(violation) = self.violation {
            return Err(violation);
        }
        let pos = self.memory.consumer().pos.load(Ordering::Relaxed);
        // Pairs with the release in Consumer::release(): the bytes are not overwritten before they were read.
        fence(Ordering::Acquire);
        let capacity = self.memory.capacity().bytes();
        let (min, max) = (self.limit - capacity, self.published);
        if pos < min || pos > max || pos % HEADER != 0 {
            return Err(self.fail(ProtocolViolation::Released { pos, min, max }));
        }
        self.limit = pos + capacity;
        Ok(pos)
    }

    /// Stores and returns the first violation, which every later call returns.
    #[cold]
    #[inline(never)]
    pub fn fail(&mut self, violation: ProtocolViolation) -> ProtocolViolation {
        self.limit = 0;
        *self.violation.get_or_insert(violation)
    }

    /// The position of the next record's bytes. The caller fills as many as the record has that it then writes.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.written + HEADER
    }

    /// As bytes(). The caller may fill as many as it has checked room for, whether or not it then writes the record.
    #[inline]
    pub fn reserve(&mut self, len: u32) -> u64 {
        let bytes = self.bytes();
        self.reserved_end = self.reserved_end.max(bytes + u64::from(len));
        bytes
    }

    /// The number of bytes that were reserved since the last record was written, if any call reserved some.
    #[inline]
    pub fn reserved(&self) -> Option<u64> {
        self.reserved_end.checked_sub(self.written + HEADER)
    }

    /// Makes a record of the filled bytes. It is not visible to the consumer yet.
    #[inline]
    pub fn write(&mut self, len: u32) {
        let at = self.written;
        self.memory.word(at).store(len, Ordering::Relaxed);
        if at != self.published {
            // The consumer waits at the first record of the batch; its release in publish() covers this store, too.
            self.memory
                .word(at + STATE)
                .store(RECORD_READY, Ordering::Relaxed);
        }
        self.written = at + record_stride(len);
        if self.reserved_end > self.written {
            // More bytes were filled than the record has.
            self.zeroed_to = self.written;
        }
        self.reserved_end = 0;
        // The consumer takes a single long record, and waits for the next one, before the lines that a window adds are filled:
        // they would be transferred once more.
        self.window = match at == self.published && record_stride(len) > WINDOW {
            true => 0,
            false => WINDOW,
        };
    }

    #[inline]
    pub fn has_batch(&self) -> bool {
        self.written != self.published
    }

    /// Makes all written records visible to the consumer. The caller then notifies the consumer, and calls prezero() after
    /// that.
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
        // Pairs with the acquire in Consumer::peek(): a consumer that loads this state sees the bytes, the whole batch, and
        // the zero at the position of the next record.
        self.memory
            .word(self.published + STATE)
            .store(RECORD_READY, Ordering::Release);
        self.published = self.written;
        // Only a hint of the amount, so relaxed suffices.
        self.memory
            .producer()
            .pos
            .store(self.written, Ordering::Relaxed);
    }

    /// Zeroes ahead while the record is in transit.
    #[inline]
    pub fn prezero(&mut self) {
        // Whole lines only.
        let goal = ((self.written + self.window) & !(LINE - 1)).min(self.limit);
        if goal > self.zeroed_to {
            self.memory.zero(self.zeroed_to, goal);
            self.zeroed_to = goal;
        }
    }

    /// Bytes, including headers, that are published and not released.
    pub fn pending(&mut self) -> Result<u64, ProtocolViolation> {
        Ok(self.published - self.refresh_released()?)
    }
}
