// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sending side of a ring.

use std::ffi::{c_int, c_void};
use std::mem::{self, ManuallyDrop, MaybeUninit};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::ptr;
use std::time::Duration;

use sluice::ring::{self, Reservation, SendError, WriteBatch};

use crate::error::{Failure, Result};
use crate::held::Holder;
use crate::input::{Wait, bytes, given};
use crate::result::call;

/// The sending side of a ring. One thread at a time may use it.
///
/// In a child of the process that has set it up, calls that send or wait fail with -ENXIO, and a close frees its memory without an effect
/// on the ring. While a reservation is held, calls other than commit, cancel, close, abort and those that only query the object fail with
/// -EBUSY.
pub struct Producer {
    side: Holder<ring::Producer, Reservation<'static>>,
    /// Whether records are not published until sluice_producer_publish().
    is_batching: bool,
    fd: c_int,
    capacity: u64,
    record_max: usize,
}

impl Producer {
    pub fn new(producer: ring::Producer) -> Self {
        Self {
            fd: producer.as_fd().as_raw_fd(),
            capacity: producer.capacity(),
            record_max: producer.max_record_len(),
            side: Holder::new(producer),
            is_batching: false,
        }
    }

    #[inline]
    fn send(&mut self, record: &[u8], wait: Wait) -> Result<()> {
        let producer = self.side.idle()?;
        let sent = match (self.is_batching, wait) {
            (true, wait) => put_in_batch(producer, record, wait),
            (false, Wait::Forever) => producer.send(record),
            (false, Wait::Never) => producer.try_send(record),
            (false, Wait::For(limit)) => producer.send_timeout(record, limit),
        };
        Ok(sent?)
    }

    #[inline]
    fn reserve(&mut self, length: usize, wait: Wait) -> Result<*mut c_void> {
        let is_batching = self.is_batching;
        let reserve = |producer: &'static mut ring::Producer| {
            Ok(match (is_batching, wait) {
                (true, wait) => reserve_in_batch(producer, length, wait),
                (false, Wait::Forever) => producer.reserve(length),
                (false, Wait::Never) => producer.try_reserve(length),
                (false, Wait::For(limit)) => producer.reserve_timeout(length, limit),
            }?)
        };
        // SAFETY: the reference is in the reservation only, which is consumed where it is taken.
        let room = unsafe { self.side.hold(reserve) }?;
        Ok(room.as_mut_ptr().cast())
    }

    #[inline]
    fn commit(&mut self, length: usize) -> Result<()> {
        let reserved = self.side.held().map(|room| room.len());
        if reserved.is_some_and(|reserved| length > reserved) {
            let message = c"the record is longer than its reservation";
            return Err(Failure::invalid(message, c"reserve the largest length"));
        }
        self.side.take_held()?.commit_len(length);
        Ok(())
    }

    /// Publishes the records of the batch, which goes on.
    fn publish(&mut self) -> Result<&mut ring::Producer> {
        let producer = self.side.idle()?;
        if self.is_batching {
            producer.send_batch().publish();
        }
        Ok(producer)
    }
}

/// A batch that does not publish its records when it ends.
fn batch(producer: &mut ring::Producer) -> ManuallyDrop<WriteBatch<'_>> {
    ManuallyDrop::new(producer.send_batch())
}

fn put_in_batch(
    producer: &mut ring::Producer,
    record: &[u8],
    wait: Wait,
) -> std::result::Result<(), SendError> {
    let mut batch = batch(producer);
    match wait {
        Wait::Forever => batch.send(record),
        Wait::Never => batch.try_send(record),
        Wait::For(limit) => batch.send_timeout(record, limit),
    }
}

fn reserve_in_batch(
    producer: &'static mut ring::Producer,
    length: usize,
    wait: Wait,
) -> std::result::Result<Reservation<'static>, SendError> {
    let mut batch = batch(producer);
    let room = match wait {
        Wait::Forever => batch.reserve(length),
        Wait::Never => batch.try_reserve(length),
        Wait::For(limit) => batch.reserve_timeout(length, limit),
    };
    // SAFETY: the reservation borrows the producer through the batch, which is not used and not dropped any more.
    unsafe { mem::transmute(room) }
}

/// Sends a record. Waits while the ring is full. Fails with -EPIPE if the consumer has closed the ring or the channel was destroyed,
/// with -ECONNRESET if the consumer died, and with -EMSGSIZE if the record is longer than sluice_producer_record_max().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_producer_send(
    producer: Option<&mut Producer>,
    record: *const c_void,
    length: usize,
    timeout_ms: c_int,
) -> c_int {
    call(|| {
        // SAFETY: the conventions.
        let record = unsafe { bytes(record, length) }?;
        given(producer)?.send(record, timeout_ms.into())?;
        Ok(0)
    })
}

/// Reserves room for a record of `length` bytes and stores its address, a multiple of 8. The content is unspecified. Waits while the ring
/// is full. sluice_producer_commit() sends the record, sluice_producer_cancel() does not.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_producer_reserve(
    producer: Option<&mut Producer>,
    length: usize,
    room: Option<&mut MaybeUninit<*mut c_void>>,
    timeout_ms: c_int,
) -> c_int {
    call(|| {
        let room = given(room)?;
        room.write(ptr::null_mut());
        room.write(given(producer)?.reserve(length, timeout_ms.into())?);
        Ok(0)
    })
}

/// Sends the first `length` bytes of the reservation as a record. Fails with -EINVAL if nothing is reserved, or less; the reservation then
/// remains.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_producer_commit(producer: Option<&mut Producer>, length: usize) -> c_int {
    call(|| given(producer)?.commit(length).map(|()| 0))
}

/// Gives the reservation back: nothing is sent.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_producer_cancel(producer: Option<&mut Producer>) -> c_int {
    call(|| {
        // It sends nothing.
        let _ = given(producer)?.side.take_held()?;
        Ok(0)
    })
}

/// Begins a batch: the consumer sees the next records together, after sluice_producer_publish(). A batch is cheaper than single records.
/// Its length is not limited: when the ring is full, its records are published. So are they by calls that wait for the consumer, and by a
/// close.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_producer_begin(producer: Option<&mut Producer>) -> c_int {
    call(|| {
        let producer = given(producer)?;
        producer.side.idle()?;
        producer.is_batching = true;
        Ok(0)
    })
}

/// Publishes the records of the batch and ends it.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_producer_publish(producer: Option<&mut Producer>) -> c_int {
    call(|| {
        let producer = given(producer)?;
        producer.publish()?;
        producer.is_batching = false;
        Ok(0)
    })
}

/// Waits until the consumer has released all records.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_producer_flush(
    producer: Option<&mut Producer>,
    timeout_ms: c_int,
) -> c_int {
    call(|| {
        let producer = given(producer)?.publish()?;
        let flushed = match Wait::from(timeout_ms) {
            Wait::Forever => producer.flush(),
            Wait::Never => producer.flush_timeout(Duration::ZERO),
            Wait::For(limit) => producer.flush_timeout(limit),
        };
        flushed.map_err(|error| Failure::from(error).at_once(timeout_ms))?;
        Ok(0)
    })
}

/// Bytes, including headers, that the consumer has not released.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_producer_pending(producer: Option<&mut Producer>) -> i64 {
    call(|| Ok(given(producer)?.side.idle()?.pending()? as i64))
}

/// Whether the consumer has closed the ring or died: 1 or 0.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_producer_is_closed(producer: Option<&mut Producer>) -> c_int {
    call(|| Ok(given(producer)?.side.idle()?.is_closed().into()))
}

/// Whether the consumer has come, also if it has ended since: 1 or 0. Over a socket it always has.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_producer_has_consumer(producer: Option<&mut Producer>) -> c_int {
    call(|| Ok(given(producer)?.side.idle()?.has_consumer()?.into()))
}

/// The capacity in bytes, including headers. 0 if the producer is NULL.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_producer_capacity(producer: Option<&Producer>) -> u64 {
    producer.map_or(0, |producer| producer.capacity)
}

/// The length limit of a record in bytes. 0 if the producer is NULL.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_producer_record_max(producer: Option<&Producer>) -> usize {
    producer.map_or(0, |producer| producer.record_max)
}

/// The descriptor to wait for with poll(2), between sluice_producer_prepare_wait() and sluice_producer_finish_wait(). It is readable, also
/// of a producer, when the consumer wakes this side or has ended. It belongs to the producer.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_producer_fd(producer: Option<&Producer>) -> c_int {
    call(|| Ok(given(producer)?.fd))
}

/// Prepares to wait until the descriptor is readable, for room for a record of `length` bytes. Returns 1: wait; or 0: there is room
/// already, or the consumer has ended. Call sluice_producer_finish_wait() after the wait, or instead of it, before other calls.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_producer_prepare_wait(
    producer: Option<&mut Producer>,
    length: usize,
) -> c_int {
    call(|| Ok(given(producer)?.publish()?.prepare_wait(length)?.into()))
}

/// Ends the wait, and reads wake-ups from the descriptor.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_producer_finish_wait(producer: Option<&mut Producer>) -> c_int {
    call(|| {
        given(producer)?.side.idle()?.finish_wait();
        Ok(0)
    })
}

/// Closes the ring and frees the producer. The consumer receives all sent records, then the end of the stream. A reservation is cancelled.
/// Records of a ring with a name that is not persistent are lost if its consumer has not come.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_producer_close(producer: Option<Box<Producer>>) {
    if let Some(mut producer) = producer {
        producer.side.take();
        let _ = producer.publish();
    }
}

/// Frees the producer without closing the ring: the consumer receives all published records, then -ECONNRESET.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_producer_abort(producer: Option<Box<Producer>>) {
    if let Some(producer) = producer {
        producer.side.into_object().abort();
    }
}
