// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::slice;
use std::time::Duration;

use bytemuck::NoUninit;
use sluice_ring::Memory;

use super::bypass::Bypass;
use super::connection::{Awaited, Connection};
use super::error::{SendError, WaitError};
use crate::shared::mapping::Mapping;
use crate::system_error::SystemError;
use crate::wait::Wait;

/// The sending side of a ring. Dropping it closes the ring: the consumer receives all sent records, then the end of the stream. It needs no
/// [flush](Self::flush) before. But records of a ring in the module that is not persistent are lost if its consumer has not come yet: wait
/// for the consumer before the drop.
///
/// A record is sent completely or not at all, and received completely.
// For the layout of `core`, see inline.rs.
#[repr(C)]
pub struct Producer {
    pub(super) core: sluice_ring::Producer<Mapping>,
    pub(super) connection: Connection,
    bypass: Bypass,
}

impl Producer {
    pub(super) fn new(connection: Connection) -> Self {
        Self {
            core: sluice_ring::Producer::new(connection.mapping().clone()),
            connection,
            bypass: Bypass::new(),
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

    /// Bytes, including headers, that the consumer has not released yet.
    pub fn pending(&mut self) -> Result<u64, SendError> {
        Ok(self.core.pending()?)
    }

    /// Sends a record. Waits while the ring is full.
    #[inline]
    pub fn send(&mut self, record: &[u8]) -> Result<(), SendError> {
        self.send_within(record, Wait::Forever)
    }

    /// Sends a record, or fails with [`SendError::Full`].
    #[inline]
    pub fn try_send(&mut self, record: &[u8]) -> Result<(), SendError> {
        self.send_within(record, Wait::Never)
    }

    /// As [`send`](Self::send), but waits at most for `timeout`, then fails with [`SendError::TimedOut`].
    pub fn send_timeout(&mut self, record: &[u8], timeout: Duration) -> Result<(), SendError> {
        self.send_within(record, Wait::For(timeout))
    }

    /// As [`send`](Self::send), but waits for the given time.
    #[inline]
    pub fn send_within(&mut self, record: &[u8], wait: impl Into<Wait>) -> Result<(), SendError> {
        self.put(record, wait)?;
        self.publish_owned();
        Ok(())
    }

    /// Reserves room for a record of `length` bytes, to be filled in place and [committed](Reservation::commit). Waits while the ring
    /// is full.
    #[inline]
    pub fn reserve(&mut self, length: usize) -> Result<Reservation<'_>, SendError> {
        self.reserve_within(length, Wait::Forever)
    }

    /// As [`reserve`](Self::reserve), but fails with [`SendError::Full`] instead of waiting.
    #[inline]
    pub fn try_reserve(&mut self, length: usize) -> Result<Reservation<'_>, SendError> {
        self.reserve_within(length, Wait::Never)
    }

    /// As [`reserve`](Self::reserve), but waits at most for `timeout`, then fails with [`SendError::TimedOut`].
    pub fn reserve_timeout(
        &mut self,
        length: usize,
        timeout: Duration,
    ) -> Result<Reservation<'_>, SendError> {
        self.reserve_within(length, Wait::For(timeout))
    }

    /// As [`reserve`](Self::reserve), but waits for the given time.
    #[inline]
    pub fn reserve_within(
        &mut self,
        length: usize,
        wait: impl Into<Wait>,
    ) -> Result<Reservation<'_>, SendError> {
        let length = self.make_room(length, wait)?;
        Ok(Reservation {
            bytes: self.room(length),
            length,
            producer: self,
            publishes: true,
        })
    }

    /// Sends the first `length` bytes of the last reservation, which was dropped, as a record. For a binding to a language without borrows:
    /// it keeps the address of a reservation instead of the reservation.
    ///
    /// # Panics
    /// If since the last record no reservation was as long.
    #[inline]
    pub fn commit_dropped(&mut self, length: usize) -> Result<(), SendError> {
        self.write_dropped(length)?;
        self.publish_owned();
        Ok(())
    }

    /// Whether the consumer has come, also if it has ended since. Over a socket it always has.
    pub fn has_consumer(&self) -> Result<bool, SystemError> {
        self.connection.has_peer()
    }

    /// Whether the consumer has closed the ring or died.
    pub fn is_closed(&mut self) -> bool {
        self.connection.is_closed()
    }

    /// Prepares to wait for room for a record of `length` bytes: until the [descriptor](AsFd) is readable, for example together with
    /// others. Returns false if there is room, or the consumer is gone. Call [`finish_wait`](Self::finish_wait) after the wait, or
    /// instead of it.
    pub fn prepare_wait(&mut self, length: usize) -> Result<bool, SendError> {
        let length = self.fits(length)?;
        let core = &mut self.core;
        let poll = || Ok(core.has_room(length)?.then_some(()));
        let found = self.connection.prepare_wait(poll);
        self.is_waiting(found)
    }

    /// As prepare_wait(), but waits until all records are released.
    #[cfg(feature = "tokio")]
    pub(super) fn prepare_flush(&mut self) -> Result<bool, SendError> {
        let core = &mut self.core;
        let poll = || Ok((core.pending()? == 0).then_some(()));
        let found = self.connection.prepare_wait(poll);
        self.is_waiting(found)
    }

    /// For the result of a prepared wait.
    fn is_waiting(
        &mut self,
        found: Result<Option<Awaited<()>>, WaitError>,
    ) -> Result<bool, SendError> {
        found
            .map(|found| found.is_none())
            .map_err(|error| self.note(error))
    }

    /// Ends the wait: reads the wake-ups from the descriptor.
    pub fn finish_wait(&mut self) {
        self.connection.finish_wait();
        self.connection.drain();
    }

    /// Drops this side without closing the ring: the consumer receives all sent records, then an error.
    pub fn abort(self) {
        self.connection.abort();
    }

    /// Starts a batch of records, which become visible to the consumer together. A batch is cheaper than single records.
    #[inline]
    pub fn send_batch(&mut self) -> WriteBatch<'_> {
        WriteBatch { producer: self }
    }

    /// Waits until the consumer has released all sent records.
    pub fn flush(&mut self) -> Result<(), SendError> {
        self.flush_within(Wait::Forever)
    }

    /// As [`flush`](Self::flush), but waits at most for `timeout`, then fails with [`SendError::TimedOut`].
    pub fn flush_timeout(&mut self, timeout: Duration) -> Result<(), SendError> {
        self.flush_within(Wait::For(timeout))
    }

    /// As [`flush`](Self::flush), but waits for the given time. A flush that would have to wait fails with [`SendError::Full`].
    pub fn flush_within(&mut self, wait: impl Into<Wait>) -> Result<(), SendError> {
        if !self.connection.is_owned() {
            return Err(SendError::Forked);
        }
        let core = &mut self.core;
        let poll = || Ok((core.pending()? == 0).then_some(()));
        let awaited = self.connection.wait(wait.into(), poll);
        self.end_wait(awaited)
    }

    /// A commit of it does not publish the record.
    #[inline]
    pub(super) fn reserve_in_batch(
        &mut self,
        length: usize,
        wait: impl Into<Wait>,
    ) -> Result<Reservation<'_>, SendError> {
        Ok(Reservation {
            publishes: false,
            ..self.reserve_within(length, wait)?
        })
    }

    /// Writes a record of a reservation that was dropped, without publishing it.
    #[inline]
    fn write_dropped(&mut self, length: usize) -> Result<(), SendError> {
        if !self.connection.is_owned() {
            return Err(SendError::Forked);
        }
        let reserved = self.core.reserved();
        if reserved.is_none_or(|reserved| length as u64 > reserved) {
            too_little_reserved(length, reserved);
        }
        // It is at most the reserved length, which was a u32.
        self.core.write(length as u32);
        Ok(())
    }

    /// Writes a record without publishing it.
    #[inline(always)]
    pub(super) fn put(&mut self, record: &[u8], wait: impl Into<Wait>) -> Result<(), SendError> {
        let length = self.make_room(record.len(), wait)?;
        let room = self.core.memory().bytes(self.core.bytes());
        // SAFETY: the room has the length of the record, and only this side accesses it before it is published.
        unsafe {
            self.bypass
                .copy(record.as_ptr(), room.as_ptr(), record.len());
        }
        self.core.write(length);
        Ok(())
    }

    /// Inlined also where it has many callers, so that a call with few registers publishes.
    #[inline(always)]
    pub(super) fn publish(&mut self) {
        if self.connection.is_owned() {
            self.publish_owned();
        }
    }

    /// As publish(), after a check of the process.
    #[inline(always)]
    fn publish_owned(&mut self) {
        self.core.publish();
        self.connection.notify();
        self.core.prezero();
    }

    pub(super) fn fits(&self, length: usize) -> Result<u32, SendError> {
        let max = self.core.memory().capacity().max_record_len();
        match u32::try_from(length) {
            Ok(length) if length <= max => Ok(length),
            _ => Err(SendError::RecordTooLong { len: length, max }),
        }
    }

    /// Inlined also where it has many callers, so that the length is returned in a register.
    #[inline(always)]
    pub(super) fn make_room(
        &mut self,
        length: usize,
        wait: impl Into<Wait>,
    ) -> Result<u32, SendError> {
        if !self.connection.is_owned() {
            return Err(SendError::Forked);
        }
        let length = self.fits(length)?;
        match self.core.has_known_room(length) {
            true => self.connection.backoff.note_progress(1),
            false => self.find_room(length, wait.into())?,
        }
        self.connection.check(self.core.memory().consumer())?;
        Ok(length)
    }

    /// Not inlined, so that a call that finds room needs no registers for it.
    #[inline(never)]
    fn find_room(&mut self, length: u32, wait: Wait) -> Result<(), SendError> {
        if self.core.has_room(length)? {
            self.connection.backoff.note_progress(1);
            return Ok(());
        }
        if self.core.has_batch() {
            // The unpublished batch may occupy the missing room.
            self.publish();
        }
        if wait.is_some() {
            self.connection.backoff.pause();
        }
        let core = &mut self.core;
        let look = || Ok(core.has_room(length)?.then_some(()));
        let awaited = self.connection.wait(wait, look);
        self.end_wait(awaited)
    }

    fn end_wait(&mut self, awaited: Result<Awaited<()>, WaitError>) -> Result<(), SendError> {
        match awaited {
            Ok(Awaited::Found(())) => Ok(()),
            Ok(Awaited::Closed) => Err(SendError::Closed),
            Err(error) => Err(self.note(error)),
        }
    }

    /// Makes a violation that the connection found final, too.
    fn note(&mut self, error: WaitError) -> SendError {
        if let WaitError::ProtocolViolation(violation) = error {
            self.core.fail(violation);
        }
        error.into()
    }

    /// The address for the bytes of a record, after room was checked.
    #[inline]
    fn room(&mut self, length: u32) -> NonNull<u8> {
        let at = self.core.reserve(length);
        self.core.memory().bytes(at)
    }
}

#[cold]
#[inline(never)]
fn too_little_reserved(length: usize, reserved: Option<u64>) -> ! {
    panic!("{length} bytes of a reservation of {reserved:?}")
}

impl AsFd for Producer {
    /// The socket or the endpoint, which is readable when this side is woken: see [`prepare_wait`](Self::prepare_wait).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.fd()
    }
}

impl fmt::Debug for Producer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer")
            .field("capacity", &self.capacity())
            .finish_non_exhaustive()
    }
}

/// Room for a record in the ring, with unspecified content. Dropped without a commit, it is released unused.
#[must_use = "a reservation that is not committed sends nothing"]
pub struct Reservation<'a> {
    producer: &'a mut Producer,
    bytes: NonNull<u8>,
    length: u32,
    publishes: bool,
}

// SAFETY: it is an exclusive slice of memory that belongs to the producer, which may go to another thread.
unsafe impl Send for Reservation<'_> {}
// SAFETY: as above; a shared reference only reads it.
unsafe impl Sync for Reservation<'_> {}

impl Reservation<'_> {
    /// Writes the value at `offset`, aligned or not; returns none if it would extend beyond the reservation. The other side
    /// [reads](crate::Bytes::read_at) it in place.
    #[inline]
    pub fn write_at<T: NoUninit>(&mut self, offset: usize, value: &T) -> Option<()> {
        let room = self.get_mut(offset..)?.get_mut(..size_of::<T>())?;
        room.copy_from_slice(bytemuck::bytes_of(value));
        Some(())
    }

    /// Sends the record. Has no effect in a forked child.
    #[inline]
    pub fn commit(self) {
        if !self.producer.connection.is_owned() {
            return;
        }
        self.producer.core.write(self.length);
        if self.publishes {
            self.producer.publish_owned();
        }
    }

    /// Sends the first `length` bytes as the record.
    ///
    /// # Panics
    /// If the reservation is shorter.
    pub fn commit_len(mut self, length: usize) {
        assert!(
            length <= self.len(),
            "{length} bytes of a reservation of {}",
            self.len()
        );
        // It is at most the reserved length, which is a u32.
        self.length = length as u32;
        self.commit();
    }
}

impl Deref for Reservation<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the memory is mapped and initialised during the lifetime of the producer, which this borrows, and only
        // this side writes to it.
        unsafe { slice::from_raw_parts(self.bytes.as_ptr(), self.length as usize) }
    }
}

impl DerefMut for Reservation<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; the producer is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.bytes.as_ptr(), self.length as usize) }
    }
}

impl fmt::Debug for Reservation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation")
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

/// Records that are sent together when the batch is dropped. When the ring is full, the batch sends its records and waits, so that
/// its size is not limited.
#[derive(Debug)]
#[must_use = "a batch is sent when it is dropped"]
pub struct WriteBatch<'a> {
    pub(super) producer: &'a mut Producer,
}

impl WriteBatch<'_> {
    /// As [`Producer::send`].
    #[inline]
    pub fn send(&mut self, record: &[u8]) -> Result<(), SendError> {
        self.producer.put(record, Wait::Forever)
    }

    /// As [`Producer::try_send`].
    #[inline]
    pub fn try_send(&mut self, record: &[u8]) -> Result<(), SendError> {
        self.producer.put(record, Wait::Never)
    }

    /// As [`Producer::send_timeout`].
    pub fn send_timeout(&mut self, record: &[u8], timeout: Duration) -> Result<(), SendError> {
        self.producer.put(record, Wait::For(timeout))
    }

    /// As [`Producer::send_within`].
    #[inline]
    pub fn send_within(&mut self, record: &[u8], wait: impl Into<Wait>) -> Result<(), SendError> {
        self.producer.put(record, wait)
    }

    /// As [`Producer::reserve`].
    #[inline]
    pub fn reserve(&mut self, length: usize) -> Result<Reservation<'_>, SendError> {
        self.producer.reserve_in_batch(length, Wait::Forever)
    }

    /// As [`Producer::try_reserve`].
    #[inline]
    pub fn try_reserve(&mut self, length: usize) -> Result<Reservation<'_>, SendError> {
        self.producer.reserve_in_batch(length, Wait::Never)
    }

    /// As [`Producer::reserve_timeout`].
    pub fn reserve_timeout(
        &mut self,
        length: usize,
        timeout: Duration,
    ) -> Result<Reservation<'_>, SendError> {
        self.producer.reserve_in_batch(length, Wait::For(timeout))
    }

    /// As [`Producer::reserve_within`].
    #[inline]
    pub fn reserve_within(
        &mut self,
        length: usize,
        wait: impl Into<Wait>,
    ) -> Result<Reservation<'_>, SendError> {
        self.producer.reserve_in_batch(length, wait)
    }

    /// As [`Producer::commit_dropped`].
    #[inline]
    pub fn commit_dropped(&mut self, length: usize) -> Result<(), SendError> {
        self.producer.write_dropped(length)
    }

    /// Sends the records now.
    #[inline]
    pub fn publish(self) {}
}

impl Drop for WriteBatch<'_> {
    #[inline]
    fn drop(&mut self) {
        self.producer.publish();
    }
}
