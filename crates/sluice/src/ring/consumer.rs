// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fmt;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use sluice_ring::Memory;

use super::connection::{Awaited, Connection, Wait};
use super::error::RecvError;
use super::mapping::Mapping;
use super::record::Bytes;

/// The side of a ring that receives records. Dropping it closes the ring: the producer learns that nothing more is received.
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
    pub fn max_record_len(&self) -> usize {
        self.core.memory().capacity().max_record_len() as usize
    }

    /// Bytes, headers included, that the producer says to have sent and that were not taken yet. It is only a hint.
    pub fn pending(&self) -> u64 {
        self.core.pending()
    }

    /// Whether the producer is gone, in order or not. There may still be records.
    pub fn is_closed(&mut self) -> bool {
        self.connection.is_closed()
    }

    /// The next record, where it lies; none once the producer is done and everything was taken. Waits if there is none yet.
    #[inline]
    pub fn peek(&mut self) -> Result<Option<Record<'_>>, RecvError> {
        self.peek_within(Wait::Forever)
    }

    /// As [`peek`](Self::peek), but fails with [`RecvError::Empty`] instead of waiting.
    #[inline]
    pub fn try_peek(&mut self) -> Result<Option<Record<'_>>, RecvError> {
        self.peek_within(Wait::Never)
    }

    /// As [`peek`](Self::peek), but waits so long at most; fails with [`RecvError::TimedOut`].
    pub fn peek_timeout(&mut self, timeout: Duration) -> Result<Option<Record<'_>>, RecvError> {
        self.peek_within(Wait::For(timeout))
    }

    /// Takes the next record into `into`, and returns how many bytes it has; none once the producer is done and everything
    /// was taken. Waits if there is none yet. A record that is longer than `into` stays.
    #[inline]
    pub fn recv(&mut self, into: &mut [u8]) -> Result<Option<usize>, RecvError> {
        self.recv_within(into, Wait::Forever)
    }

    /// As [`recv`](Self::recv), but fails with [`RecvError::Empty`] instead of waiting.
    #[inline]
    pub fn try_recv(&mut self, into: &mut [u8]) -> Result<Option<usize>, RecvError> {
        self.recv_within(into, Wait::Never)
    }

    /// As [`recv`](Self::recv), but waits so long at most; fails with [`RecvError::TimedOut`].
    pub fn recv_timeout(
        &mut self,
        into: &mut [u8],
        timeout: Duration,
    ) -> Result<Option<usize>, RecvError> {
        self.recv_within(into, Wait::For(timeout))
    }

    /// All records that are there, to be taken in a row, which costs less than one at a time; none once the producer is done and
    /// everything was taken. Waits for the first one.
    pub fn batch(&mut self) -> Result<Option<ReadBatch<'_>>, RecvError> {
        self.batch_within(Wait::Forever)
    }

    /// As [`batch`](Self::batch), but fails with [`RecvError::Empty`] instead of waiting.
    pub fn try_batch(&mut self) -> Result<Option<ReadBatch<'_>>, RecvError> {
        self.batch_within(Wait::Never)
    }

    /// As [`batch`](Self::batch), but waits so long at most; fails with [`RecvError::TimedOut`].
    pub fn batch_timeout(&mut self, timeout: Duration) -> Result<Option<ReadBatch<'_>>, RecvError> {
        self.batch_within(Wait::For(timeout))
    }

    /// Prepares to wait until the [descriptor](AsFd) is readable, for instance together with others. Returns false if there is
    /// something already, a record or the end. After the wait, or instead of it, call [`finish_wait`](Self::finish_wait).
    ///
    /// ```
    /// # use std::os::fd::AsFd;
    /// # use sluice::ring::{Consumer, RecvError};
    /// # use rustix::event::{PollFd, PollFlags, poll};
    /// /// Waits until one of them has something.
    /// fn wait_for_any(consumers: &mut [Consumer]) -> std::io::Result<()> {
    ///     let mut idle = true;
    ///     for consumer in &mut *consumers {
    ///         idle &= consumer.prepare_wait()?;
    ///     }
    ///     if idle {
    ///         let mut fds: Vec<_> = consumers
    ///             .iter()
    ///             .map(|consumer| PollFd::new(consumer, PollFlags::IN))
    ///             .collect();
    ///         poll(&mut fds, None)?;
    ///     }
    ///     for consumer in consumers {
    ///         consumer.finish_wait();
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub fn prepare_wait(&mut self) -> Result<bool, RecvError> {
        let core = &mut self.core;
        let found = self.connection.prepare_wait(|| core.peek())?;
        Ok(found.is_none())
    }

    /// Takes from the descriptor what woke this side.
    pub fn finish_wait(&mut self) {
        self.connection.finish_wait();
        self.connection.drain();
    }

    /// Leaves without closing the ring: the producer learns that this side failed.
    pub fn abort(self) {
        self.connection.abort();
    }

    fn peek_within(&mut self, wait: Wait) -> Result<Option<Record<'_>>, RecvError> {
        Ok(self.find(wait)?.map(|len| self.record(len)))
    }

    /// Of the length that find() returned.
    #[inline]
    pub(super) fn record(&mut self, len: u32) -> Record<'_> {
        Record {
            bytes: self.bytes(len),
            len,
            consumer: self,
        }
    }

    #[inline]
    fn recv_within(&mut self, into: &mut [u8], wait: Wait) -> Result<Option<usize>, RecvError> {
        match self.find(wait)? {
            Some(len) => Ok(Some(self.take(len, into)?)),
            None => Ok(None),
        }
    }

    /// Copies and releases the record of the length that find() returned.
    #[inline]
    pub(super) fn take(&mut self, len: u32, into: &mut [u8]) -> Result<usize, RecvError> {
        let copied = self.copy(len, into)?;
        self.core.advance(len);
        self.release();
        Ok(copied)
    }

    fn batch_within(&mut self, wait: Wait) -> Result<Option<ReadBatch<'_>>, RecvError> {
        Ok(self.find(wait)?.map(|_| ReadBatch { consumer: self }))
    }

    /// The length of the next record.
    #[inline]
    pub(super) fn find(&mut self, wait: Wait) -> Result<Option<u32>, RecvError> {
        let Self { core, connection } = self;
        if core.has_record() {
            connection.backoff.note_progress();
        } else if !wait.is_some() || !connection.spin_briefly(|polls| core.poll(polls)) {
            return self.wait(wait);
        }
        match core.peek()? {
            Some(len) => Ok(Some(len)),
            // A producer that takes a record back is none to learn the end from.
            None => self.wait(wait),
        }
    }

    #[cold]
    fn wait(&mut self, wait: Wait) -> Result<Option<u32>, RecvError> {
        let core = &mut self.core;
        match self.connection.wait(wait, || core.peek())? {
            Awaited::Found(len) => Ok(Some(len)),
            Awaited::Closed => Ok(None),
        }
    }

    #[inline]
    fn bytes<'a>(&self, len: u32) -> Bytes<'a> {
        let start = self.core.memory().bytes(self.core.bytes());
        // SAFETY: a length that was found is within the ring, a header ends at a multiple of eight, and whoever gets this
        // borrows the consumer, which keeps the memory mapped.
        unsafe { Bytes::new(start, len) }
    }

    #[inline]
    fn copy(&self, len: u32, into: &mut [u8]) -> Result<usize, RecvError> {
        if len as usize > into.len() {
            let room = into.len();
            return Err(RecvError::BufferTooSmall { len, room });
        }
        Ok(self.bytes(len).copy_to(0, into))
    }

    #[inline]
    fn release(&mut self) {
        self.core.release();
        self.connection.notify();
    }
}

impl AsFd for Consumer {
    /// The socket, which is readable when this side is woken: see [`prepare_wait`](Self::prepare_wait).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.socket().as_fd()
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
#[must_use = "a record that is not released is the next one again"]
pub struct Record<'a> {
    consumer: &'a mut Consumer,
    bytes: Bytes<'a>,
    len: u32,
}

impl Record<'_> {
    /// Gives its room back to the producer.
    #[inline]
    pub fn release(self) {
        self.consumer.core.advance(self.len);
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
#[must_use = "a batch of which nothing is taken changes nothing"]
pub struct ReadBatch<'a> {
    pub(super) consumer: &'a mut Consumer,
}

impl ReadBatch<'_> {
    /// The next one, where it lies; none if there is no other one yet. It counts as taken.
    #[inline]
    pub fn take(&mut self) -> Result<Option<Bytes<'_>>, RecvError> {
        let Some(len) = self.consumer.core.peek_more()? else {
            return Ok(None);
        };
        let bytes = self.consumer.bytes(len);
        self.advance(len);
        Ok(Some(bytes))
    }

    /// Takes the next one into `into`, and returns how many bytes it has; none if there is no other one yet. One that is longer
    /// than `into` stays.
    #[inline]
    pub fn recv(&mut self, into: &mut [u8]) -> Result<Option<usize>, RecvError> {
        let Some(len) = self.consumer.core.peek_more()? else {
            return Ok(None);
        };
        let copied = self.consumer.copy(len, into)?;
        self.advance(len);
        Ok(Some(copied))
    }

    #[inline]
    fn advance(&mut self, len: u32) {
        self.consumer.connection.backoff.note_progress();
        self.consumer.core.advance(len);
    }
}

impl Drop for ReadBatch<'_> {
    fn drop(&mut self) {
        if self.consumer.core.has_unreleased() {
            self.consumer.release();
        }
    }
}
