// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use sluice_ring::Memory;

use super::connection::{Awaited, Connection, Wait};
use super::error::{Error, Result};
use super::mapping::Mapping;
use super::record::Bytes;

/// The side of a ring that receives records.
pub struct Consumer {
    core: sluice_ring::Consumer<Mapping>,
    pub(super) connection: Connection,
}

impl Consumer {
    pub(super) fn new(connection: Connection) -> Self {
        Self {
            core: sluice_ring::Consumer::new(connection.mapping().clone()),
            connection,
        }
    }

    /// Bytes for records on the way, their headers included.
    pub fn capacity(&self) -> u64 {
        self.core.memory().capacity().bytes()
    }

    /// Bytes of the longest record.
    pub fn longest(&self) -> usize {
        self.core.memory().capacity().max_record_len() as usize
    }

    /// Bytes, headers included, that the producer says to have sent and that were not taken yet.
    pub fn pending(&self) -> u64 {
        self.core.pending()
    }

    /// The next record, where it lies; none once the producer is done and everything was taken. Waits if there is none yet.
    #[inline]
    pub fn peek(&mut self) -> Result<Option<Record<'_>>> {
        self.peek_within(Wait::Forever)
    }

    /// As [`peek`](Self::peek), but fails with [`Error::Empty`] instead of waiting.
    #[inline]
    pub fn try_peek(&mut self) -> Result<Option<Record<'_>>> {
        self.peek_within(Wait::Never)
    }

    /// As [`peek`](Self::peek), but waits so long at most; fails with [`Error::TimedOut`].
    pub fn peek_timeout(&mut self, timeout: Duration) -> Result<Option<Record<'_>>> {
        self.peek_within(Wait::For(timeout))
    }

    /// Takes the next record into `into`, and says how many bytes it has; none once the producer is done and everything
    /// was taken. Waits if there is none yet. A record that is longer than `into` stays.
    #[inline]
    pub fn recv(&mut self, into: &mut [u8]) -> Result<Option<usize>> {
        self.recv_within(into, Wait::Forever)
    }

    /// As [`recv`](Self::recv), but fails with [`Error::Empty`] instead of waiting.
    #[inline]
    pub fn try_recv(&mut self, into: &mut [u8]) -> Result<Option<usize>> {
        self.recv_within(into, Wait::Never)
    }

    /// As [`recv`](Self::recv), but waits so long at most; fails with [`Error::TimedOut`].
    pub fn recv_timeout(&mut self, into: &mut [u8], timeout: Duration) -> Result<Option<usize>> {
        self.recv_within(into, Wait::For(timeout))
    }

    /// All records that are there, to be taken in a row, which costs less than one at a time; none once the producer is done and
    /// everything was taken. Waits for the first one.
    pub fn batch(&mut self) -> Result<Option<Batch<'_>>> {
        Ok(self.find(Wait::Forever)?.map(|_| Batch { consumer: self }))
    }

    fn peek_within(&mut self, wait: Wait) -> Result<Option<Record<'_>>> {
        Ok(self.find(wait)?.map(|length| Record {
            bytes: self.bytes(length),
            length,
            consumer: self,
        }))
    }

    #[inline]
    fn recv_within(&mut self, into: &mut [u8], wait: Wait) -> Result<Option<usize>> {
        let Some(length) = self.find(wait)? else {
            return Ok(None);
        };
        let copied = self.copy(length, into)?;
        self.take(length);
        self.release();
        Ok(Some(copied))
    }

    /// The length of the next record.
    #[inline]
    pub(super) fn find(&mut self, wait: Wait) -> Result<Option<u32>> {
        let Self { core, connection } = self;
        if core.has_record() {
            connection.backoff.note_progress();
        } else if !wait.is_some() || !connection.spin_briefly(|| core.poll_prefetch()) {
            return self.wait(wait);
        }
        match core.peek()? {
            Some(length) => Ok(Some(length)),
            // A producer that takes a record back is none to learn the end from.
            None => self.wait(wait),
        }
    }

    #[cold]
    fn wait(&mut self, wait: Wait) -> Result<Option<u32>> {
        let core = &mut self.core;
        match self.connection.wait(wait, || core.peek())? {
            Awaited::Found(length) => Ok(Some(length)),
            Awaited::Closed => Ok(None),
        }
    }

    #[cfg(feature = "tokio")]
    pub(super) fn prepare_wait(&mut self) -> Result<Option<Option<u32>>> {
        let core = &mut self.core;
        Ok(match self.connection.prepare_wait(|| core.peek())? {
            Some(Awaited::Found(length)) => Some(Some(length)),
            Some(Awaited::Closed) => Some(None),
            None => None,
        })
    }

    #[inline]
    fn bytes<'a>(&self, length: u32) -> Bytes<'a> {
        let start = self.core.memory().bytes(self.core.bytes());
        // SAFETY: a length that was found is within the ring, a header ends at a multiple of eight, and whoever gets this
        // borrows the consumer, which keeps the memory mapped.
        unsafe { Bytes::new(start, length) }
    }

    #[inline]
    pub(super) fn copy(&self, length: u32, into: &mut [u8]) -> Result<usize> {
        if length as usize > into.len() {
            let room = into.len();
            return Err(Error::TooLittleRoom { length, room });
        }
        Ok(self.bytes(length).copy_to(0, into))
    }

    #[inline]
    pub(super) fn take(&mut self, length: u32) {
        self.core.advance(length);
    }

    #[inline]
    pub(super) fn release(&mut self) {
        self.core.release();
        self.connection.notify();
    }
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("capacity", &self.capacity())
            .finish_non_exhaustive()
    }
}

/// A record that is still in the ring. Dropped without a release, it is the next one again.
#[derive(Debug)]
pub struct Record<'a> {
    consumer: &'a mut Consumer,
    bytes: Bytes<'a>,
    length: u32,
}

impl Record<'_> {
    /// Gives its room back to the producer.
    #[inline]
    pub fn release(self) {
        self.consumer.take(self.length);
        self.consumer.release();
    }
}

impl<'a> Deref for Record<'a> {
    type Target = Bytes<'a>;

    fn deref(&self) -> &Bytes<'a> {
        &self.bytes
    }
}

/// Records that are taken in a row. Their room is given back when it is dropped.
#[derive(Debug)]
pub struct Batch<'a> {
    consumer: &'a mut Consumer,
}

impl Batch<'_> {
    /// The next one, where it lies; none if there is no other one yet. It counts as taken.
    #[inline]
    pub fn take(&mut self) -> Result<Option<Bytes<'_>>> {
        let Some(length) = self.consumer.core.peek_more()? else {
            return Ok(None);
        };
        let bytes = self.consumer.bytes(length);
        self.step_over(length);
        Ok(Some(bytes))
    }

    /// Takes the next one into `into`, and says how many bytes it has; none if there is no other one yet. One that is longer
    /// than `into` stays.
    #[inline]
    pub fn recv(&mut self, into: &mut [u8]) -> Result<Option<usize>> {
        let Some(length) = self.consumer.core.peek_more()? else {
            return Ok(None);
        };
        let copied = self.consumer.copy(length, into)?;
        self.step_over(length);
        Ok(Some(copied))
    }

    #[inline]
    fn step_over(&mut self, length: u32) {
        self.consumer.connection.backoff.note_progress();
        self.consumer.take(length);
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        if self.consumer.core.has_unreleased() {
            self.consumer.release();
        }
    }
}
