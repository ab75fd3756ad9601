// SPDX-License-Identifier: MIT OR Apache-2.0

use sluice_abi::ring::RECORD;

use crate::geometry::{HEADER, LINE, step};
use crate::lie::Lie;
use crate::memory::Memory;
use crate::sync::Ordering;

/// How far ahead the memory is cleared: enough that the line of the next record but one is there in time, and little
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
    /// What the consumer is known to have released.
    released: u64,
    cleared: u64,
    /// Where the bytes end that were given out to be filled since the last record was written.
    touched: u64,
}

impl<M: Memory> Producer<M> {
    /// Of a ring that nothing was ever written to.
    pub fn new(memory: M) -> Self {
        Self {
            published: 0,
            written: 0,
            released: 0,
            cleared: memory.capacity().bytes(),
            touched: 0,
            memory,
        }
    }

    #[inline]
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Whether a record of so many bytes, at most the longest, can be written now.
    #[inline]
    pub fn has_room(&mut self, length: u32) -> Result<bool, Lie> {
        // The next state behind it is cleared before it is published.
        let end = self.written + step(length) + HEADER;
        let capacity = self.memory.capacity().bytes();
        if end - self.released <= capacity {
            return Ok(true);
        }
        self.look_what_is_released()?;
        Ok(end - self.released <= capacity)
    }

    fn look_what_is_released(&mut self) -> Result<(), Lie> {
        // Pairs with the release in Consumer::release: what was read there is not overwritten before it was read.
        let said = self.memory.consumer().position.load(Ordering::Acquire);
        let (least, most) = (self.released, self.published);
        if said < least || said > most || said % HEADER != 0 {
            return Err(Lie::Released { said, least, most });
        }
        self.released = said;
        Ok(())
    }

    /// Where the next record's bytes belong. The caller may fill as many as it has asked room for, whether or not it
    /// writes the record then.
    #[inline]
    pub fn bytes_for(&mut self, length: u32) -> u64 {
        let bytes = self.written + HEADER;
        self.touched = self.touched.max(bytes + u64::from(length));
        bytes
    }

    /// Makes a record of the bytes that are there. The consumer does not see it yet.
    #[inline]
    pub fn write(&mut self, length: u32) {
        let at = self.written;
        self.memory.word(at).store(length, Ordering::Relaxed);
        if at != self.published {
            // The first of a batch holds the consumer back, and publish releases this too.
            self.memory
                .word(at + STATE)
                .store(RECORD, Ordering::Relaxed);
        }
        self.written = at + step(length);
        if self.touched > self.written {
            // More was filled than became of the record.
            self.cleared = self.written;
        }
        self.touched = 0;
    }

    #[inline]
    pub fn has_batch(&self) -> bool {
        self.written != self.published
    }

    /// Lets the consumer see what was written. The caller then calls it if it sleeps, and after that clears ahead.
    #[inline]
    pub fn publish(&mut self) {
        if !self.has_batch() {
            return;
        }
        if self.cleared < self.written + HEADER {
            self.memory
                .word(self.written + STATE)
                .store(0, Ordering::Relaxed);
            self.cleared = self.written + HEADER;
        }
        // Pairs with the acquire in Consumer::peek: who sees this state sees the bytes, the whole batch, and the zero
        // where the next record will begin.
        self.memory
            .word(self.published + STATE)
            .store(RECORD, Ordering::Release);
        self.published = self.written;
        // Nobody relies on it; it says how much there is.
        self.memory
            .producer()
            .position
            .store(self.written, Ordering::Relaxed);
    }

    /// While the record is on its way.
    #[inline]
    pub fn clear_ahead(&mut self) {
        let free = self.released + self.memory.capacity().bytes();
        // By whole lines.
        let goal = ((self.written + WINDOW) & !(LINE - 1)).min(free);
        if goal > self.cleared {
            self.memory.clear(self.cleared, goal);
            self.cleared = goal;
        }
    }

    /// Bytes, headers included, that are published and not known to be released.
    pub fn pending(&mut self) -> Result<u64, Lie> {
        self.look_what_is_released()?;
        Ok(self.published - self.released)
    }
}
