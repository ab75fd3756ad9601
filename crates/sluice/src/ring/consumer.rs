// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fmt;
use std::mem;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::thread;
use std::time::Duration;

use sluice_ring::Memory;

use super::connection::{Awaited, Connection};
use super::error::{RecvError, WaitError};
use crate::shared::bytes::Bytes;
use crate::shared::mapping::Mapping;
use crate::system_error::SystemError;
use crate::wait::Wait;

/// The side of a ring that receives records. Dropping it closes the ring: the producer learns that nothing more is received.
// For the layout of `core`, see inline.rs.
#[repr(C)]
pub struct Consumer {
    pub(super) core: sluice_ring::Consumer<Mapping>,
    pub(super) connection: Connection,
}

impl Consumer {
    pub(super) fn new(connection: Connection) -> Self {
        Self {
            core: sluice_ring::Consumer::new(connection.mapping().clone()),
            connection,
        }
    }

    /// The capacity in bytes for unreleased records, including their headers.
    pub fn capacity(&self) -> u64 {
        self.core.memory().capacity().bytes()
    }

    /// The length limit of a record, in bytes.
    pub fn max_record_len(&self) -> usize {
        self.core.memory().capacity().max_record_len() as usize
    }

    /// Bytes, including headers, that the producer has reported as sent and that were not received yet. Only a hint.
    pub fn pending(&self) -> u64 {
        self.core.pending()
    }

    /// Whether the producer has come, also if it has ended since. Over a socket it always has.
    pub fn has_producer(&self) -> Result<bool, SystemError> {
        self.connection.has_peer()
    }

    /// Whether the producer has closed the ring or died. There may still be records.
    pub fn is_closed(&mut self) -> bool {
        self.connection.is_closed()
    }

    /// Returns the next record in place, or none at the end of the stream. Waits for a record. The record is released when it is
    /// dropped, also by an early return, unless it is [kept](Record::keep).
    #[inline]
    pub fn recv(&mut self) -> Result<Option<Record<'_>>, RecvError> {
        self.recv_within(Wait::Forever)
    }

    /// As [`recv`](Self::recv), but fails with [`RecvError::Empty`] instead of waiting.
    #[inline]
    pub fn try_recv(&mut self) -> Result<Option<Record<'_>>, RecvError> {
        self.recv_within(Wait::Never)
    }

    /// As [`recv`](Self::recv), but waits at most for `timeout`, then fails with [`RecvError::TimedOut`].
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<Option<Record<'_>>, RecvError> {
        self.recv_within(Wait::For(timeout))
    }

    /// As [`recv`](Self::recv), but waits for the given time.
    #[inline]
    pub fn recv_within(&mut self, wait: impl Into<Wait>) -> Result<Option<Record<'_>>, RecvError> {
        Ok(self.find(wait)?.map(|len| self.record(len)))
    }

    /// Copies the next record to `into` and returns its length, or none at the end of the stream. Waits for a record. A record
    /// longer than `into` is not received and stays the next one.
    #[inline]
    pub fn recv_into(&mut self, into: &mut [u8]) -> Result<Option<usize>, RecvError> {
        self.recv_into_within(into, Wait::Forever)
    }

    /// As [`recv_into`](Self::recv_into), but fails with [`RecvError::Empty`] instead of waiting.
    #[inline]
    pub fn try_recv_into(&mut self, into: &mut [u8]) -> Result<Option<usize>, RecvError> {
        self.recv_into_within(into, Wait::Never)
    }

    /// As [`recv_into`](Self::recv_into), but waits at most for `timeout`, then fails with [`RecvError::TimedOut`].
    pub fn recv_into_timeout(
        &mut self,
        into: &mut [u8],
        timeout: Duration,
    ) -> Result<Option<usize>, RecvError> {
        self.recv_into_within(into, Wait::For(timeout))
    }

    /// As [`recv_into`](Self::recv_into), but waits for the given time.
    #[inline]
    pub fn recv_into_within(
        &mut self,
        into: &mut [u8],
        wait: impl Into<Wait>,
    ) -> Result<Option<usize>, RecvError> {
        match self.find(wait)? {
            Some(len) => Ok(Some(self.take(len, into)?)),
            None => Ok(None),
        }
    }

    /// Returns all available records as a batch, or none at the end of the stream. Waits for the first one. A batch is cheaper than
    /// single records, because it is released as a whole.
    pub fn recv_batch(&mut self) -> Result<Option<ReadBatch<'_>>, RecvError> {
        self.recv_batch_within(Wait::Forever)
    }

    /// As [`recv_batch`](Self::recv_batch), but fails with [`RecvError::Empty`] instead of waiting.
    pub fn try_recv_batch(&mut self) -> Result<Option<ReadBatch<'_>>, RecvError> {
        self.recv_batch_within(Wait::Never)
    }

    /// As [`recv_batch`](Self::recv_batch), but waits at most for `timeout`, then fails with [`RecvError::TimedOut`].
    pub fn recv_batch_timeout(
        &mut self,
        timeout: Duration,
    ) -> Result<Option<ReadBatch<'_>>, RecvError> {
        self.recv_batch_within(Wait::For(timeout))
    }

    /// As [`recv_batch`](Self::recv_batch), but waits for the given time.
    pub fn recv_batch_within(
        &mut self,
        wait: impl Into<Wait>,
    ) -> Result<Option<ReadBatch<'_>>, RecvError> {
        Ok(self.find(wait)?.map(|_| ReadBatch { consumer: self }))
    }

    /// Whether records are held: see [`Record::hold`].
    #[inline]
    pub fn is_holding(&self) -> bool {
        self.core.has_unreleased()
    }

    /// Releases the records that are held.
    #[inline]
    pub fn release_held(&mut self) {
        self.release();
    }

    /// Leaves the records that are held in the ring: the first one is the next one again.
    pub fn keep_held(&mut self) {
        self.core.rewind();
    }

    /// Prepares to wait until the [descriptor](AsFd) is readable, for example together with others. Returns false if a record or
    /// the end of the stream is available. Call [`finish_wait`](Self::finish_wait) after the wait, or instead of it.
    ///
    /// ```
    /// # use std::os::fd::AsFd;
    /// # use sluice::ring::{Consumer, RecvError};
    /// # use rustix::event::{PollFd, PollFlags, poll};
    /// /// Waits until a consumer has a record or the end of its stream.
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
        let found = self.connection.prepare_wait(|| core.peek());
        found
            .map(|found| found.is_none())
            .map_err(|error| self.note(error))
    }

    /// Ends the wait: reads the wake-ups from the descriptor.
    pub fn finish_wait(&mut self) {
        self.connection.finish_wait();
        self.connection.drain();
    }

    /// Drops this side without closing the ring, so that the producer gets an error.
    pub fn abort(self) {
        self.connection.abort();
    }

    /// The record of the length that find() returned.
    #[inline]
    pub(super) fn record(&mut self, len: u32) -> Record<'_> {
        Record {
            bytes: self.bytes(len),
            len,
            consumer: self,
        }
    }

    /// Copies and releases the record of the length that find() returned.
    #[inline]
    pub(super) fn take(&mut self, len: u32, into: &mut [u8]) -> Result<usize, RecvError> {
        let copied = self.copy(len, into)?;
        self.core.advance(len);
        self.release_owned();
        Ok(copied)
    }

    /// The length of the next record. Inlined also where it has many callers, so that it is returned in registers.
    #[inline(always)]
    pub(super) fn find(&mut self, wait: impl Into<Wait>) -> Result<Option<u32>, RecvError> {
        if !self.connection.is_owned() {
            return Err(RecvError::Forked);
        }
        if !self.core.has_record() {
            return self.find_later(wait.into());
        }
        self.connection.backoff.note_progress(1);
        match self.core.peek()? {
            Some(len) => Ok(Some(len)),
            // The producer has withdrawn a record: wait instead of reporting the end of the stream.
            None => self.wait(wait.into()),
        }
    }

    /// As find(), where no record is available yet.
    #[inline(never)]
    fn find_later(&mut self, wait: Wait) -> Result<Option<u32>, RecvError> {
        let Self { core, connection } = self;
        if wait.is_some() && connection.spin_briefly(|polls| core.poll(polls)) {
            if let Some(len) = core.peek()? {
                return Ok(Some(len));
            }
        }
        self.wait(wait)
    }

    #[cold]
    fn wait(&mut self, wait: Wait) -> Result<Option<u32>, RecvError> {
        let core = &mut self.core;
        match self.connection.wait(wait, || core.peek()) {
            Ok(Awaited::Found(len)) => Ok(Some(len)),
            Ok(Awaited::Closed) => Ok(None),
            Err(error) => Err(self.note(error)),
        }
    }

    /// Makes a violation that the connection found final, too.
    fn note(&mut self, error: WaitError) -> RecvError {
        if let WaitError::ProtocolViolation(violation) = error {
            self.core.fail(violation);
        }
        error.into()
    }

    #[inline]
    fn bytes<'a>(&self, len: u32) -> Bytes<'a> {
        let start = self.core.memory().bytes(self.core.bytes());
        // SAFETY: a validated length is within the ring, and a header ends at a multiple of eight. The caller borrows the
        // consumer, which keeps the memory mapped.
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
        if !self.connection.is_owned() {
            // It receives nothing more, so that nothing is held.
            return self.core.rewind();
        }
        self.release_owned();
    }

    /// As release(), after a check of the process.
    #[inline]
    fn release_owned(&mut self) {
        self.core.release();
        self.connection.notify();
    }
}

impl AsFd for Consumer {
    /// The socket or the endpoint, which is readable when this side is woken: see [`prepare_wait`](Self::prepare_wait).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.fd()
    }
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("capacity", &self.capacity())
            .finish_non_exhaustive()
    }
}

/// A record in place. Dropping it releases it, so that its room is free for the producer.
#[derive(Debug)]
#[must_use = "a record that is dropped is received"]
pub struct Record<'a> {
    consumer: &'a mut Consumer,
    bytes: Bytes<'a>,
    len: u32,
}

impl Record<'_> {
    /// Ends the borrow without a release, for a binding to a language without borrows: the record stays in place until
    /// [`Consumer::release_held`]. Call that, or [`Consumer::keep_held`], before the next record is received.
    #[inline]
    pub fn hold(self) {
        self.consumer.core.advance(self.len);
        mem::forget(self);
    }

    /// Leaves the record in the ring: it is the next one again. For a receiver that could not process it; if it then drops the consumer,
    /// the producer learns that the record was not received.
    pub fn keep(self) {
        mem::forget(self);
    }
}

impl Drop for Record<'_> {
    #[inline]
    fn drop(&mut self) {
        // What a panic interrupted is not received.
        if !thread::panicking() {
            self.consumer.core.advance(self.len);
            self.consumer.release();
        }
    }
}

impl<'a> Deref for Record<'a> {
    type Target = Bytes<'a>;

    fn deref(&self) -> &Bytes<'a> {
        &self.bytes
    }
}

/// Available records, received one after the other. Dropping the batch releases those that were received.
#[derive(Debug)]
#[must_use = "a batch of which nothing is received changes nothing"]
pub struct ReadBatch<'a> {
    pub(super) consumer: &'a mut Consumer,
}

impl ReadBatch<'_> {
    /// Receives the next record in place; none if no further record is available yet.
    #[inline]
    pub fn recv(&mut self) -> Result<Option<Bytes<'_>>, RecvError> {
        let Some(len) = self.consumer.core.peek_more()? else {
            return Ok(None);
        };
        let bytes = self.consumer.bytes(len);
        self.advance(len);
        Ok(Some(bytes))
    }

    /// Copies the next record to `into` and returns its length; none if no further record is available yet. A record longer than
    /// `into` is not received and stays the next one.
    #[inline]
    pub fn recv_into(&mut self, into: &mut [u8]) -> Result<Option<usize>, RecvError> {
        let Some(len) = self.consumer.core.peek_more()? else {
            return Ok(None);
        };
        let copied = self.consumer.copy(len, into)?;
        self.advance(len);
        Ok(Some(copied))
    }

    /// Ends the borrow without a release, as [`Record::hold`] does.
    pub fn hold(self) {
        mem::forget(self);
    }

    /// Ends the batch without releasing its records: the first one is the next record again. For a receiver that could not process
    /// them; if it then drops the consumer, the producer learns that they were not received.
    pub fn rewind(self) {
        self.consumer.core.rewind();
    }

    #[inline]
    fn advance(&mut self, len: u32) {
        if self.consumer.core.has_unreleased() {
            // The first one was counted when it was found.
            self.consumer.connection.backoff.note_progress(1);
        }
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
