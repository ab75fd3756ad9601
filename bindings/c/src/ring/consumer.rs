// SPDX-License-Identifier: MIT OR Apache-2.0
//! The receiving side of a ring.

use std::ffi::{c_int, c_void};
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::ptr;

use libc::{iovec, ssize_t};
use sluice::ring::{self, ReadBatch, RecvError};

use super::inlined::Inlined;
use crate::error::{Failure, Result};
use crate::held::{Holder, holding, idle};
use crate::input::{Timeout, array_mut, given, room};
use crate::result::call;

/// The receiving side of a ring. One thread at a time may use it.
///
/// In a child of the process that has set it up, calls that receive or wait fail with -ENXIO, and release, close and abort have no effect
/// on the ring. While it holds records, its calls fail with -EBUSY, except release, keep, close, abort, and the queries of capacity,
/// descriptor and longest record.
// A plain repr(C) would make cbindgen show the fields to C, where inline.h has a structure for the beginning.
#[cfg_attr(unix, repr(C))]
pub struct Consumer {
    inlined: Inlined,
    /// The fields `stride` and `alike` of inlined code.
    _alike: [u64; 2],
    consumer: ring::Consumer,
}

/// struct sluice_consumer_head of inline.h.
const _: () = {
    const POSITIONS: usize = offset_of!(Consumer, consumer) + ring::Consumer::POSITIONS;
    assert!(offset_of!(Consumer, inlined) == 0);
    assert!(POSITIONS == 72);
};

impl From<ring::Consumer> for Consumer {
    fn from(consumer: ring::Consumer) -> Self {
        Self {
            inlined: Inlined::new(consumer.inline_addresses()),
            _alike: [0; 2],
            consumer,
        }
    }
}

impl Holder for Consumer {
    #[inline]
    fn is_holding(&self) -> bool {
        self.consumer.is_holding()
    }
}

impl Consumer {
    /// Before a call that receives.
    #[inline]
    fn receiving(&mut self) -> &mut ring::Consumer {
        if let Some(records) = self.inlined.take_records() {
            self.consumer.note_inlined(records);
        }
        &mut self.consumer
    }
}

/// Returns the number of records: 0 if the producer has withdrawn the record that was found. A failure after the first record is reported by
/// the next call.
fn fill(batch: &mut ReadBatch<'_>, records: &mut [MaybeUninit<iovec>]) -> Result<usize> {
    for (filled, room) in records.iter_mut().enumerate() {
        match batch.recv() {
            Ok(Some(record)) => room.write(place(&record)),
            Err(error) if filled == 0 => return Err(error.into()),
            Ok(None) | Err(_) => return Ok(filled),
        };
    }
    Ok(records.len())
}

/// Where the bytes are. C gets them as writable, because iovec has no other form; their memory is mapped for reading.
#[inline]
fn place(bytes: &sluice::Bytes<'_>) -> iovec {
    iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    }
}

/// Receives the next record in place: stores its address, a multiple of 8, and returns its length. Waits for a record. The consumer holds
/// the record until sluice_consumer_release(). Fails with -ENODATA at the end of the stream, and with -ECONNRESET if the producer has
/// died, both after the last record.
///
/// The producer can change the bytes of a record at any time: copy an untrusted record once, as sluice_consumer_recv_into() does, and
/// validate the copy.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_consumer_recv(
    consumer: Option<&mut Consumer>,
    record: Option<&mut MaybeUninit<*const c_void>>,
    timeout_ms: c_int,
) -> ssize_t {
    call(|| {
        let out = given(record)?;
        out.write(ptr::null());
        let received = idle(consumer)?
            .receiving()
            .recv_within(Timeout(timeout_ms))?;
        let record = received.ok_or_else(Failure::ended)?;
        out.write(record.as_ptr().cast());
        let length = record.len();
        record.hold();
        Ok(length)
    })
}

/// Receives up to `count` available records in place, and returns their number. Waits for the first one. The consumer holds all of them
/// until sluice_consumer_release(). Cheaper than single records. The bytes are mapped for reading only. Has the errors of
/// sluice_consumer_recv().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_consumer_recv_batch(
    consumer: Option<&mut Consumer>,
    records: *mut iovec,
    count: usize,
    timeout_ms: c_int,
) -> ssize_t {
    call(|| {
        // SAFETY: the conventions.
        let records = unsafe { array_mut(records.cast(), count) }?;
        if records.is_empty() {
            let message = c"there is no room for a record";
            return Err(Failure::invalid(message, c"pass an array"));
        }
        let consumer = idle(consumer)?.receiving();
        loop {
            let received = consumer.recv_batch_within(Timeout(timeout_ms))?;
            let mut batch = received.ok_or_else(Failure::ended)?;
            match fill(&mut batch, records)? {
                0 if timeout_ms < 0 => {}
                // A malicious producer could prolong the wait without end.
                0 => return Err(RecvError::Empty.into()),
                filled => {
                    batch.hold();
                    return Ok(filled);
                }
            }
        }
    })
}

/// Releases the records that the consumer holds: their room is free for the producer, and their addresses are invalid. Fails with -EINVAL
/// if the consumer holds none.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_consumer_release(consumer: Option<&mut Consumer>) -> c_int {
    call(|| {
        let consumer = holding(consumer)?;
        consumer.consumer.release_held();
        // The producer of a ring with a name may have come meanwhile.
        consumer.inlined.attend_to(consumer.consumer.attention());
        Ok(())
    })
}

/// Leaves the records that the consumer holds in the ring: the first one is the next one again. For a receiver that could not process
/// them; if it then closes the ring, the producer learns that they were not received.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_consumer_keep(consumer: Option<&mut Consumer>) -> c_int {
    call(|| {
        holding(consumer)?.consumer.keep_held();
        Ok(())
    })
}

/// Copies the next record to a buffer, releases it, and returns its length. Waits for a record. Fails with -EMSGSIZE if the record is
/// longer than the buffer; it stays the next one. Also has the errors of sluice_consumer_recv().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_consumer_recv_into(
    consumer: Option<&mut Consumer>,
    buffer: *mut c_void,
    size: usize,
    timeout_ms: c_int,
) -> ssize_t {
    call(|| {
        // SAFETY: the conventions.
        let buffer = unsafe { room(buffer, size) }?;
        let received = idle(consumer)?
            .receiving()
            .recv_into_within(buffer, Timeout(timeout_ms))?;
        received.ok_or_else(Failure::ended)
    })
}

/// Bytes, including headers, that the producer has reported as sent and that were not received yet. Only a hint.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_consumer_pending(consumer: Option<&mut Consumer>) -> i64 {
    call(|| Ok(idle(consumer)?.consumer.pending()))
}

/// Whether the producer has closed the ring or died: 1 or 0. There may still be records.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_consumer_is_closed(consumer: Option<&mut Consumer>) -> c_int {
    call(|| Ok(idle(consumer)?.consumer.is_closed()))
}

/// Whether the producer has come, also if it has ended since: 1 or 0. Over a socket it always has.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_consumer_has_producer(consumer: Option<&mut Consumer>) -> c_int {
    call(|| Ok(idle(consumer)?.consumer.has_producer()?))
}

/// The capacity in bytes, including headers. 0 if the consumer is NULL.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_consumer_capacity(consumer: Option<&Consumer>) -> u64 {
    consumer.map_or(0, |consumer| consumer.consumer.capacity())
}

/// The length limit of a record in bytes. 0 if the consumer is NULL.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_consumer_record_max(consumer: Option<&Consumer>) -> usize {
    consumer.map_or(0, |consumer| consumer.consumer.max_record_len())
}

/// The descriptor to wait for with poll(2), between sluice_consumer_prepare_wait() and sluice_consumer_finish_wait(). It is readable when
/// the producer wakes this side or has ended. It belongs to the consumer.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_consumer_fd(consumer: Option<&Consumer>) -> c_int {
    call(|| Ok(given(consumer)?.consumer.as_fd().as_raw_fd()))
}

/// Prepares to wait until the descriptor is readable. Returns 1: wait; or 0: a record or the end is available already. Call
/// sluice_consumer_finish_wait() after the wait, or instead of it, before other calls.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_consumer_prepare_wait(consumer: Option<&mut Consumer>) -> c_int {
    call(|| Ok(idle(consumer)?.consumer.prepare_wait()?))
}

/// Ends the wait, and reads wake-ups from the descriptor.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_consumer_finish_wait(consumer: Option<&mut Consumer>) -> c_int {
    call(|| {
        idle(consumer)?.consumer.finish_wait();
        Ok(())
    })
}

/// Closes the ring and frees the consumer: the producer learns that nothing more is received. Records that the consumer holds are not
/// released.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_consumer_close(consumer: Option<Box<Consumer>>) {
    drop(consumer);
}

/// Frees the consumer without closing the ring, so that the producer gets an error.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_consumer_abort(consumer: Option<Box<Consumer>>) {
    if let Some(consumer) = consumer {
        consumer.consumer.abort();
    }
}
