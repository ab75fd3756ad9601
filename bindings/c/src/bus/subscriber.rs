// SPDX-License-Identifier: MIT OR Apache-2.0
//! The subscribers of a bus that receive copies.

use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd as _;
use std::ptr;

use libc::ssize_t;
use sluice::bus;

use super::message::Message;
use super::options::{BusOptions, named};
use super::state::BusState;
use crate::error::{Failure, Result};
use crate::input::{Timeout, array_mut, given, owned, room};
use crate::result::{call, give, put, put_optional};

/// Receives the messages of a bus that are sent from its open on; of a unicast bus those in its queue. One thread at a time may use it, and
/// one process.
pub struct Subscriber {
    subscriber: bus::Subscriber,
    /// Messages in the buffer of the subscriber that were received in a batch and not returned yet. The subscriber receives nothing before
    /// there are none.
    ahead: VecDeque<Message>,
}

impl From<bus::Subscriber> for Subscriber {
    fn from(subscriber: bus::Subscriber) -> Self {
        Self {
            subscriber,
            ahead: VecDeque::new(),
        }
    }
}

impl Subscriber {
    fn recv(&mut self, timeout: Timeout) -> Result<Message> {
        if let Some(message) = self.ahead.pop_front() {
            return Ok(message);
        }
        timeout.run(|wait| self.subscriber.recv_within(wait).map(Message::from))
    }

    fn recv_into(&mut self, into: &mut [u8], timeout: Timeout) -> Result<Message> {
        if !self.ahead.is_empty() {
            return self.copy_ahead(into);
        }
        let header = timeout.run(|wait| self.subscriber.recv_into_within(into, wait))?;
        Ok(header.into())
    }

    /// As recv_into(), of a message that was received ahead.
    fn copy_ahead(&mut self, into: &mut [u8]) -> Result<Message> {
        let (len, room) = (self.ahead[0].length, into.len());
        if len > room {
            return Err(bus::RecvError::BufferTooSmall { len, room }.into());
        }
        let mut message = self.recv(Timeout(0))?;
        // SAFETY: the message is in the buffer of the subscriber, which has received nothing since. The buffer of C is other memory.
        unsafe { ptr::copy_nonoverlapping(message.bytes.cast(), into.as_mut_ptr(), len) };
        message.bytes = ptr::null();
        Ok(message)
    }

    /// Returns the number of messages.
    fn recv_batch(&mut self, into: &mut [MaybeUninit<Message>], timeout: Timeout) -> Result<usize> {
        if into.is_empty() {
            let message = c"there is no room for a message";
            return Err(Failure::invalid(message, c"pass an array"));
        }
        if self.ahead.is_empty() {
            timeout.run(|wait| {
                let batch = self.subscriber.recv_batch_within(wait)?;
                self.ahead.extend(batch.map(Message::from));
                Ok::<_, bus::RecvError>(())
            })?;
        }
        let count = into.len().min(self.ahead.len());
        for (room, message) in into.iter_mut().zip(self.ahead.drain(..count)) {
            room.write(message);
        }
        Ok(count)
    }
}

/// Opens a bus to receive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_bus_open_subscriber(
    name: *const c_char,
    options: *const BusOptions,
    subscriber: Option<&mut MaybeUninit<*mut Subscriber>>,
) -> c_int {
    give(subscriber, || {
        // SAFETY: the conventions.
        Ok(unsafe { named(name, options) }?.subscriber()?)
    })
}

/// Uses an endpoint that was inherited or received. The descriptor belongs to the library from then on, also after a failure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_subscriber_attach(
    fd: c_int,
    subscriber: Option<&mut MaybeUninit<*mut Subscriber>>,
) -> c_int {
    // SAFETY: the conventions.
    let endpoint = unsafe { owned(fd) };
    give(subscriber, || Ok(bus::Subscriber::attach(endpoint?)?))
}

/// Receives the next message in a buffer of the subscriber, whose content is valid until the next call that receives. Waits for a message.
/// Fails with -EPIPE if the bus was destroyed, and with -ESHUTDOWN if the subscriber was evicted.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_subscriber_recv(
    subscriber: Option<&mut Subscriber>,
    message: Option<&mut MaybeUninit<Message>>,
    timeout_ms: c_int,
) -> c_int {
    put(message, || given(subscriber)?.recv(Timeout(timeout_ms)))
}

/// Copies the next message to a buffer, and returns its length. Waits for a message. `header` is NULL, or receives the header of the
/// message. Fails with -EMSGSIZE if the message is longer than the buffer; it stays the next one. Also has the errors of
/// sluice_subscriber_recv().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_subscriber_recv_into(
    subscriber: Option<&mut Subscriber>,
    buffer: *mut c_void,
    size: usize,
    header: Option<&mut MaybeUninit<Message>>,
    timeout_ms: c_int,
) -> ssize_t {
    call(|| {
        // SAFETY: the conventions.
        let buffer = unsafe { room(buffer, size) }?;
        let message = given(subscriber)?.recv_into(buffer, Timeout(timeout_ms))?;
        put_optional(header, Some(message));
        Ok(message.length)
    })
}

/// Receives up to `count` available messages with one system call, and returns their number. Waits for the first one. They are valid until
/// the next call that receives. The system call may return more messages, which the next calls return. The descriptor does not tell of
/// those: call with a timeout of 0 until -EAGAIN before waiting for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_subscriber_recv_batch(
    subscriber: Option<&mut Subscriber>,
    messages: *mut Message,
    count: usize,
    timeout_ms: c_int,
) -> ssize_t {
    call(|| {
        // SAFETY: the conventions.
        let room = unsafe { array_mut(messages.cast(), count) }?;
        given(subscriber)?.recv_batch(room, Timeout(timeout_ms))
    })
}

/// The descriptor of the endpoint, which is readable when there is a message, or the bus has ended. It belongs to the subscriber.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_subscriber_fd(subscriber: Option<&Subscriber>) -> c_int {
    call(|| Ok(given(subscriber)?.subscriber.as_raw_fd()))
}

/// Queries the state of the bus and of this endpoint.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_subscriber_info(
    subscriber: Option<&Subscriber>,
    state: Option<&mut MaybeUninit<BusState>>,
) -> c_int {
    put(state, || Ok(given(subscriber)?.subscriber.info()?))
}

/// Closes and frees the subscriber.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_subscriber_close(subscriber: Option<Box<Subscriber>>) {
    drop(subscriber);
}
