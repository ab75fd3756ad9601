// SPDX-License-Identifier: MIT OR Apache-2.0
//! The receiving side of a ring.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::ptr;

use libc::{iovec, ssize_t};
use sluice::ring::{self, ReadBatch, Record};

use crate::error::{Failure, Result};
use crate::held::Holder;
use crate::input::{Wait, array_mut, given, room};
use crate::result::call;

/// The receiving side of a ring. One thread at a time may use it.
///
/// In a child of the process that has set it up, calls that receive or wait fail with -ENXIO, and a close frees its memory without an
/// effect on the ring. While records are held, calls other than release, keep, close, abort and those that only query the object fail
/// with -EBUSY.
pub struct Consumer {
    side: Holder<ring::Consumer, Held>,
    fd: c_int,
    capacity: u64,
    record_max: usize,
}

/// What is released at once.
enum Held {
    Record(Record<'static>),
    Batch(ReadBatch<'static>),
}

impl Held {
    /// Leaves it in the ring.
    fn keep(self) {
        match self {
            Self::Record(record) => record.keep(),
            Self::Batch(batch) => batch.rewind(),
        }
    }
}

impl Consumer {
    pub fn new(consumer: ring::Consumer) -> Self {
        Self {
            fd: consumer.as_fd().as_raw_fd(),
            capacity: consumer.capacity(),
            record_max: consumer.max_record_len(),
            side: Holder::new(consumer),
        }
    }

    #[inline]
    fn recv(&mut self, wait: Wait) -> Result<iovec> {
        let receive = |consumer: &'static mut ring::Consumer| {
            let record = match wait {
                Wait::Forever => consumer.recv(),
                Wait::Never => consumer.try_recv(),
                Wait::For(limit) => consumer.recv_timeout(limit),
            };
            record?.map(Held::Record).ok_or_else(Failure::ended)
        };
        // SAFETY: the reference is in the record only, which is dropped or kept where it is taken.
        match unsafe { self.side.hold(receive) }? {
            Held::Record(record) => Ok(place(record)),
            Held::Batch(_) => Err(Failure::ended()),
        }
    }

    /// Returns the number of records.
    fn recv_batch(&mut self, records: &mut [MaybeUninit<iovec>], wait: Wait) -> Result<usize> {
        if records.is_empty() {
            let message = c"there is no room for a record";
            return Err(Failure::invalid(message, c"pass an array"));
        }
        let receive = |consumer: &'static mut ring::Consumer| {
            let batch = match wait {
                Wait::Forever => consumer.recv_batch(),
                Wait::Never => consumer.try_recv_batch(),
                Wait::For(limit) => consumer.recv_batch_timeout(limit),
            };
            batch?.map(Held::Batch).ok_or_else(Failure::ended)
        };
        // SAFETY: the reference is in the batch only, which is dropped or rewound where it is taken.
        let filled = match unsafe { self.side.hold(receive) }? {
            Held::Batch(batch) => fill(batch, records),
            Held::Record(_) => Ok(0),
        };
        if filled.is_err() {
            drop(self.side.take());
        }
        filled
    }

    fn keep_held(&mut self) {
        if let Some(held) = self.side.take() {
            held.keep();
        }
    }

    #[inline]
    fn recv_into(&mut self, into: &mut [u8], wait: Wait) -> Result<usize> {
        let consumer = self.side.idle()?;
        let length = match wait {
            Wait::Forever => consumer.recv_into(into),
            Wait::Never => consumer.try_recv_into(into),
            Wait::For(limit) => consumer.recv_into_timeout(into, limit),
        };
        length?.ok_or_else(Failure::ended)
    }
}

/// A failure after the first record is reported by the next call.
fn fill(batch: &mut ReadBatch<'static>, records: &mut [MaybeUninit<iovec>]) -> Result<usize> {
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

/// Receives the next record in place: stores its address, a multiple of 8, and returns its length. Waits for a record. The record is held
/// until sluice_consumer_release(). -ENODATA is the end of the stream, -ECONNRESET the death of the producer; all records are received
/// before.
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
        let record = given(record)?;
        record.write(ptr::null());
        let place = given(consumer)?.recv(timeout_ms.into())?;
        record.write(place.iov_base);
        // A record is shorter than a mapping.
        Ok(place.iov_len as ssize_t)
    })
}

/// Receives up to `count` records in place that are available, and returns their number. Waits for the first one. They are held until
/// sluice_consumer_release(), which releases all of them. Cheaper than single records. Do not write to the bytes.
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
        let filled = given(consumer)?.recv_batch(records, timeout_ms.into())?;
        Ok(filled as ssize_t)
    })
}

/// Releases what is held, so that its room is free for the producer. The addresses are invalid from then on.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_consumer_release(consumer: Option<&mut Consumer>) -> c_int {
    call(|| {
        drop(given(consumer)?.side.take_held()?);
        Ok(0)
    })
}

/// Leaves what is held in the ring: its first record is the next one again. For a receiver that could not process it; if it then closes
/// the ring, the producer learns that the record was not received.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_consumer_keep(consumer: Option<&mut Consumer>) -> c_int {
    call(|| {
        given(consumer)?.side.take_held()?.keep();
        Ok(0)
    })
}

/// Copies the next record to a buffer, releases it, and returns its length. Waits for a record. A record that is longer than the buffer
/// fails with -EMSGSIZE and stays the next one. -ENODATA and -ECONNRESET
/// have the meaning that they have for sluice_consumer_recv().
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
        let length = given(consumer)?.recv_into(buffer, timeout_ms.into())?;
        Ok(length as ssize_t)
    })
}

/// Bytes, including headers, that the producer has reported as sent and that were not received yet. Only a hint.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_consumer_pending(consumer: Option<&mut Consumer>) -> i64 {
    call(|| Ok(given(consumer)?.side.idle()?.pending() as i64))
}

/// Whether the producer has closed the ring or died: 1 or 0. There may still be records.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_consumer_is_closed(consumer: Option<&mut Consumer>) -> c_int {
    call(|| Ok(given(consumer)?.side.idle()?.is_closed().into()))
}

/// Whether the producer has come, also if it has ended since: 1 or 0. Over a socket it always has.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_consumer_has_producer(consumer: Option<&mut Consumer>) -> c_int {
    call(|| Ok(given(consumer)?.side.idle()?.has_producer()?.into()))
}

/// The capacity in bytes, including headers. 0 if the consumer is NULL.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_consumer_capacity(consumer: Option<&Consumer>) -> u64 {
    consumer.map_or(0, |consumer| consumer.capacity)
}

/// The length limit of a record in bytes. 0 if the consumer is NULL.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_consumer_record_max(consumer: Option<&Consumer>) -> usize {
    consumer.map_or(0, |consumer| consumer.record_max)
}

/// The descriptor to wait for with poll(2), between sluice_consumer_prepare_wait() and sluice_consumer_finish_wait(). It is readable when
/// the producer wakes this side or has ended. It belongs to the consumer.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_consumer_fd(consumer: Option<&Consumer>) -> c_int {
    call(|| Ok(given(consumer)?.fd))
}

/// Prepares to wait until the descriptor is readable. Returns 1: wait; or 0: a record or the end is available already. Call
/// sluice_consumer_finish_wait() after the wait, or instead of it, before other calls.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_consumer_prepare_wait(consumer: Option<&mut Consumer>) -> c_int {
    call(|| Ok(given(consumer)?.side.idle()?.prepare_wait()?.into()))
}

/// Ends the wait, and reads wake-ups from the descriptor.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_consumer_finish_wait(consumer: Option<&mut Consumer>) -> c_int {
    call(|| {
        given(consumer)?.side.idle()?.finish_wait();
        Ok(0)
    })
}

/// Closes the ring and frees the consumer: the producer learns that nothing more is received. What is held is not released.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_consumer_close(consumer: Option<Box<Consumer>>) {
    if let Some(mut consumer) = consumer {
        consumer.keep_held();
    }
}

/// Frees the consumer without closing the ring, so that the producer gets an error.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_consumer_abort(consumer: Option<Box<Consumer>>) {
    if let Some(mut consumer) = consumer {
        consumer.keep_held();
        consumer.side.into_object().abort();
    }
}
