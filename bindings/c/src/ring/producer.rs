// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sending side of a ring.

use std::ffi::{c_int, c_void};
use std::mem::{ManuallyDrop, MaybeUninit, offset_of};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::ptr;
use std::sync::atomic::AtomicU32;

use libc::{iovec, ssize_t};
use sluice::ring::{self, SendError, WriteBatch};

use super::inlined::Inlined;
use crate::error::{AGAIN, Failure, Result};
use crate::held::{Holder, holding, idle};
use crate::input::{Timeout, array, bytes, given};
use crate::result::call;

/// The sending side of a ring. One thread at a time may use it.
///
/// In a child of the process that has set it up, calls that send or wait fail with -ENXIO, and close and abort have no effect on the ring.
/// While it holds a reservation, its calls fail with -EBUSY, except commit, cancel, close, abort, and the queries of capacity, descriptor
/// and longest record.
// A plain repr(C) would make cbindgen show the fields to C, where inline.h has a structure for the beginning.
#[cfg_attr(unix, repr(C))]
pub struct Producer {
    inlined: Inlined,
    max_len: usize,
    /// The length of the reservation, or NONE.
    reserved: usize,
    /// Where it is not 0 if the consumer has to be woken.
    waiting: *const AtomicU32,
    /// Whether records are not published until sluice_producer_publish(): 1 or 0.
    is_batching: u64,
    producer: ring::Producer,
}

/// struct sluice_producer_head of inline.h.
const _: () = {
    const POSITIONS: usize = offset_of!(Producer, producer) + ring::Producer::POSITIONS;
    assert!(offset_of!(Producer, inlined) == 0);
    assert!(offset_of!(Producer, max_len) == 56);
    assert!(offset_of!(Producer, reserved) == 64);
    assert!(offset_of!(Producer, waiting) == 72);
    assert!(offset_of!(Producer, is_batching) == 80);
    assert!(POSITIONS == 88);
};

/// In place of an Option, which is two words.
const NONE: usize = usize::MAX;

impl From<ring::Producer> for Producer {
    fn from(producer: ring::Producer) -> Self {
        Self {
            inlined: Inlined::new(producer.inline_addresses()),
            max_len: producer.max_record_len(),
            reserved: NONE,
            waiting: producer.waiting(),
            is_batching: 0,
            producer,
        }
    }
}

impl Holder for Producer {
    #[inline]
    fn is_holding(&self) -> bool {
        self.reserved != NONE
    }
}

impl Producer {
    /// A call, without a reservation, that counts what inline functions have sent, or finds the end of the consumer, for them.
    #[inline]
    fn with<T>(
        producer: Option<&mut Self>,
        call: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let producer = idle(producer)?;
        if let Some(records) = producer.inlined.take_records() {
            producer.producer.note_inlined(records);
        }
        let result = call(producer);
        producer.attend();
        result
    }

    /// After a call that may have changed when inlined code has to call the library.
    #[inline]
    fn attend(&mut self) {
        self.inlined.attend_to(self.producer.attention());
        self.waiting = self.producer.waiting();
    }

    /// The batch of C, which goes on.
    #[inline]
    fn batch(&mut self) -> Option<ManuallyDrop<WriteBatch<'_>>> {
        (self.is_batching != 0).then(|| ManuallyDrop::new(self.producer.send_batch()))
    }

    /// Publishes the records of the batch, which goes on; and wakes the consumer for those of inlined code.
    fn publish(&mut self) -> &mut ring::Producer {
        self.producer.send_batch().publish();
        &mut self.producer
    }
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
        Producer::with(producer, |producer| {
            match producer.batch() {
                Some(mut batch) => batch.send_within(record, Timeout(timeout_ms))?,
                None => producer.producer.send_within(record, Timeout(timeout_ms))?,
            }
            Ok(())
        })
    })
}

/// Reserves room for a record of `length` bytes and stores its address, a multiple of 8. The content is unspecified. Waits while the ring
/// is full. sluice_producer_commit() sends the record, sluice_producer_cancel() does not. Has the errors of sluice_producer_send().
#[unsafe(no_mangle)]
pub extern "C" fn sluice_producer_reserve(
    producer: Option<&mut Producer>,
    length: usize,
    room: Option<&mut MaybeUninit<*mut c_void>>,
    timeout_ms: c_int,
) -> c_int {
    call(|| {
        let out = given(room)?;
        out.write(ptr::null_mut());
        Producer::with(producer, |producer| {
            let mut room = producer
                .producer
                .reserve_within(length, Timeout(timeout_ms))?;
            out.write(room.as_mut_ptr().cast());
            producer.reserved = length;
            Ok(())
        })
    })
}

/// Sends the first `length` bytes of the reservation as a record. Fails with -EINVAL if there is no reservation, or if it is shorter; a
/// shorter one remains.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_producer_commit(producer: Option<&mut Producer>, length: usize) -> c_int {
    call(|| {
        let producer = holding(producer)?;
        if length > producer.reserved {
            let message = c"the record is longer than its reservation";
            return Err(Failure::invalid(message, c"reserve the largest length"));
        }
        producer.reserved = NONE;
        match producer.batch() {
            Some(mut batch) => batch.commit_dropped(length)?,
            None => producer.producer.commit_dropped(length)?,
        }
        producer.attend();
        Ok(())
    })
}

/// Gives the reservation back: nothing is sent.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_producer_cancel(producer: Option<&mut Producer>) -> c_int {
    call(|| {
        holding(producer)?.reserved = NONE;
        Ok(())
    })
}

/// Sends `count` records as a batch, which costs less than a call for each, and returns their number. Waits as sluice_producer_send() does,
/// where the timeout begins anew with each record that finds no room. A failure after the first record is reported by the next call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_producer_send_batch(
    producer: Option<&mut Producer>,
    records: *const iovec,
    count: usize,
    timeout_ms: c_int,
) -> ssize_t {
    call(|| {
        // SAFETY: the conventions.
        let records = unsafe { array(records, count) }?;
        Producer::with(producer, |producer| match producer.batch() {
            Some(mut batch) => send_all(&mut batch, records, timeout_ms),
            None => send_all(&mut producer.producer.send_batch(), records, timeout_ms),
        })
    })
}

fn send_all(batch: &mut WriteBatch<'_>, records: &[iovec], timeout_ms: c_int) -> Result<usize> {
    for (sent, record) in records.iter().enumerate() {
        // SAFETY: the conventions.
        let result = unsafe { bytes(record.iov_base, record.iov_len) }
            .and_then(|record| Ok(batch.send_within(record, Timeout(timeout_ms))?));
        match result {
            Err(failure) if sent == 0 => return Err(failure),
            Err(_) => return Ok(sent),
            Ok(()) => {}
        }
    }
    Ok(records.len())
}

/// Begins a batch: the consumer sees the next records together, after sluice_producer_publish(). A batch is cheaper than single records.
/// Its length is not limited: when the ring is full, its records are published. Calls that wait for the consumer, and a close, publish them,
/// too.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_producer_begin(producer: Option<&mut Producer>) -> c_int {
    call(|| {
        idle(producer)?.is_batching = 1;
        Ok(())
    })
}

/// Publishes the records of the batch and ends it.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_producer_publish(producer: Option<&mut Producer>) -> c_int {
    call(|| {
        let producer = idle(producer)?;
        producer.publish();
        producer.attend();
        producer.is_batching = 0;
        Ok(())
    })
}

/// Waits until the consumer has released all records. Has the errors of sluice_producer_send() that tell of the consumer.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_producer_flush(
    producer: Option<&mut Producer>,
    timeout_ms: c_int,
) -> c_int {
    call(|| {
        Producer::with(producer, |producer| {
            let flushed = producer.publish().flush_within(Timeout(timeout_ms));
            flushed.map_err(|error| match error {
                SendError::Full => {
                    let message = c"the consumer has not released all records";
                    Failure::new(libc::EAGAIN, message, AGAIN)
                }
                error => error.into(),
            })
        })
    })
}

/// Bytes, including headers, that the consumer has not released.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_producer_pending(producer: Option<&mut Producer>) -> i64 {
    call(|| Ok(idle(producer)?.producer.pending()?))
}

/// Whether the consumer has closed the ring or died: 1 or 0.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_producer_is_closed(producer: Option<&mut Producer>) -> c_int {
    call(|| Producer::with(producer, |producer| Ok(producer.producer.is_closed())))
}

/// Whether the consumer has come, also if it has ended since: 1 or 0. Over a socket it always has.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_producer_has_consumer(producer: Option<&mut Producer>) -> c_int {
    call(|| Ok(idle(producer)?.producer.has_consumer()?))
}

/// The capacity in bytes, including headers. 0 if the producer is NULL.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_producer_capacity(producer: Option<&Producer>) -> u64 {
    producer.map_or(0, |producer| producer.producer.capacity())
}

/// The length limit of a record in bytes. 0 if the producer is NULL.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_producer_record_max(producer: Option<&Producer>) -> usize {
    producer.map_or(0, |producer| producer.producer.max_record_len())
}

/// The descriptor to wait for with poll(2), between sluice_producer_prepare_wait() and sluice_producer_finish_wait(). It is readable, also
/// of a producer, when the consumer wakes this side or has ended. It belongs to the producer.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_producer_fd(producer: Option<&Producer>) -> c_int {
    call(|| Ok(given(producer)?.producer.as_fd().as_raw_fd()))
}

/// Prepares to wait until the descriptor is readable, for room for a record of `length` bytes. Returns 1: wait; or 0: there is room
/// already, or the consumer has ended. Call sluice_producer_finish_wait() after the wait, or instead of it, before other calls.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_producer_prepare_wait(
    producer: Option<&mut Producer>,
    length: usize,
) -> c_int {
    call(|| {
        Producer::with(producer, |producer| {
            Ok(producer.publish().prepare_wait(length)?)
        })
    })
}

/// Ends the wait, and reads wake-ups from the descriptor.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_producer_finish_wait(producer: Option<&mut Producer>) -> c_int {
    call(|| {
        Producer::with(producer, |producer| {
            producer.producer.finish_wait();
            Ok(())
        })
    })
}

/// Closes the ring and frees the producer. The consumer receives all sent records, then the end of the stream. A reservation is cancelled.
/// Records of a ring with a name that is not persistent are lost if its consumer has not come: call sluice_producer_flush() before.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_producer_close(producer: Option<Box<Producer>>) {
    if let Some(mut producer) = producer {
        producer.publish();
    }
}

/// Frees the producer without closing the ring: the consumer receives all published records, then -ECONNRESET.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_producer_abort(producer: Option<Box<Producer>>) {
    if let Some(producer) = producer {
        producer.producer.abort();
    }
}
