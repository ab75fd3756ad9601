// SPDX-License-Identifier: MIT OR Apache-2.0

use sluice_abi::ring::RECORD;

use crate::geometry::{HEADER, LINE, step};
use crate::lie::Lie;
use crate::memory::Memory;
use crate::producer::STATE;
use crate::sync::Ordering;

/// The side that reads records. See the picture at the top of the crate.
#[derive(Debug)]
pub struct Consumer<M> {
    memory: M,
    /// Of the next record.
    position: u64,
    released: u64,
}

impl<M: Memory> Consumer<M> {
    /// Of a ring that nothing was ever taken from.
    pub fn new(memory: M) -> Self {
        Self {
            memory,
            position: 0,
            released: 0,
        }
    }

    #[inline]
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Whether there is a record, or something that should not be there.
    #[inline]
    pub fn has_record(&self) -> bool {
        // What follows from it is for peek to say, which looks again.
        self.memory
            .word(self.position + STATE)
            .load(Ordering::Relaxed)
            != 0
    }

    /// As has_record, for who waits for it: most records end in the line behind their header's, which comes over at the same time
    /// then, and not after it.
    #[inline]
    pub fn watch(&self) -> bool {
        self.memory.prefetch(self.position + LINE);
        self.has_record()
    }

    /// The length of the record that is there, if there is one. Read once: whatever the producer writes there later, this
    /// many bytes are within the ring.
    #[inline]
    pub fn peek(&self) -> Result<Option<u32>, Lie> {
        let at = self.position;
        // Pairs with the release in Producer::publish.
        match self.memory.word(at + STATE).load(Ordering::Acquire) {
            0 => Ok(None),
            RECORD => {
                let length = self.memory.word(at).load(Ordering::Relaxed);
                let most = self.memory.capacity().longest();
                if length > most {
                    return Err(Lie::Length { at, length, most });
                }
                Ok(Some(length))
            }
            state => Err(Lie::State { at, state }),
        }
    }

    /// As peek, for who has not released yet what it took: there cannot be more than the ring holds, so that whoever takes all
    /// that is there comes to an end.
    #[inline]
    pub fn peek_more(&self) -> Result<Option<u32>, Lie> {
        let Some(length) = self.peek()? else {
            return Ok(None);
        };
        let end = self.position + step(length);
        let (released, capacity) = (self.released, self.memory.capacity().bytes());
        // The producer keeps room for the state behind it.
        if end + HEADER - released > capacity {
            return Err(Lie::TooMany {
                end,
                released,
                capacity,
            });
        }
        Ok(Some(length))
    }

    /// Where the bytes are of the record that peek found.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.position + HEADER
    }

    /// Goes on to the record after the one of this length. Its bytes stay until they are released.
    #[inline]
    pub fn take(&mut self, length: u32) {
        self.position += step(length);
    }

    pub fn holds(&self) -> bool {
        self.position != self.released
    }

    /// Gives back everything that was taken. The caller then calls the producer if it sleeps.
    #[inline]
    pub fn release(&mut self) {
        self.released = self.position;
        // Pairs with the acquire in Producer::look_what_is_released.
        self.memory
            .consumer()
            .position
            .store(self.position, Ordering::Release);
    }

    /// Bytes, headers included, that are said to be published and were not taken yet. Only an honest producer tells the truth.
    pub fn pending(&self) -> u64 {
        let said = self.memory.producer().position.load(Ordering::Relaxed);
        said.saturating_sub(self.position)
            .min(self.memory.capacity().bytes())
    }
}
