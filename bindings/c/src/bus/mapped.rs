// SPDX-License-Identifier: MIT OR Apache-2.0
//! The subscribers of a bus that map its memory.

use std::ffi::{c_char, c_int};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd as _;

use sluice::bus::{self, MappedMessage};

use super::message::Message;
use super::options::{BusOptions, named};
use super::state::BusState;
use crate::error::Result;
use crate::held::Holder;
use crate::input::{Wait, given, owned};
use crate::result::{call, give, put};

/// Receives the messages of a bus in place. Senders wait for it. One thread at a time may use it; in a child of the process that has opened
/// it, a release has no effect.
///
/// Calls with a timeout set O_NONBLOCK of the descriptor, and those without clear it. While a message is held, calls other than release,
/// close and those that only query the object fail with -EBUSY.
pub struct MappedSubscriber {
    subscriber: Holder<bus::MappedSubscriber, MappedMessage<'static>>,
    fd: c_int,
}

impl From<bus::MappedSubscriber> for MappedSubscriber {
    fn from(subscriber: bus::MappedSubscriber) -> Self {
        Self {
            fd: subscriber.as_raw_fd(),
            subscriber: Holder::new(subscriber),
        }
    }
}

impl MappedSubscriber {
    fn recv(&mut self, wait: Wait) -> Result<Message> {
        let receive = |subscriber: &'static mut bus::MappedSubscriber| {
            Ok(match wait {
                Wait::Forever => subscriber.recv(),
                Wait::Never => subscriber.try_recv(),
                Wait::For(limit) => subscriber.recv_timeout(limit),
            }?)
        };
        // SAFETY: the reference is in the message only, which is dropped where it is taken.
        let message = unsafe { self.subscriber.hold(receive) }?;
        Ok(Message::from(&*message))
    }
}

/// Opens a bus that was created with SLUICE_MAPPABLE to receive through mapped memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_bus_open_mapped_subscriber(
    name: *const c_char,
    options: *const BusOptions,
    subscriber: Option<&mut MaybeUninit<*mut MappedSubscriber>>,
) -> c_int {
    give(subscriber, || {
        // SAFETY: the conventions.
        Ok(unsafe { named(name, options) }?.mapped_subscriber()?.into())
    })
}

/// Uses an endpoint that was inherited or received, and opened for mapping. The descriptor belongs to the library from then on, also after
/// a failure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_mapped_subscriber_attach(
    fd: c_int,
    subscriber: Option<&mut MaybeUninit<*mut MappedSubscriber>>,
) -> c_int {
    // SAFETY: the conventions.
    let endpoint = unsafe { owned(fd) };
    give(subscriber, || {
        Ok(bus::MappedSubscriber::attach(endpoint?)?.into())
    })
}

/// Receives the next message in place, at an address that is a multiple of 8. Waits for a message. It is held until
/// sluice_mapped_subscriber_release(). Has the errors of sluice_subscriber_recv().
#[unsafe(no_mangle)]
pub extern "C" fn sluice_mapped_subscriber_recv(
    subscriber: Option<&mut MappedSubscriber>,
    message: Option<&mut MaybeUninit<Message>>,
    timeout_ms: c_int,
) -> c_int {
    put(message, || given(subscriber)?.recv(timeout_ms.into()))
}

/// Releases the message. Senders get its room with the next call that receives, or when released messages hold an eighth of the capacity;
/// sluice_mapped_subscriber_flush() does not wait for that.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_mapped_subscriber_release(
    subscriber: Option<&mut MappedSubscriber>,
) -> c_int {
    call(|| {
        drop(given(subscriber)?.subscriber.take_held()?);
        Ok(0)
    })
}

/// Gives senders the room of all released messages.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_mapped_subscriber_flush(
    subscriber: Option<&mut MappedSubscriber>,
) -> c_int {
    call(|| {
        given(subscriber)?.subscriber.idle()?.release()?;
        Ok(0)
    })
}

/// The descriptor of the endpoint, which is readable when there is a message that was not received, or the bus has ended. A call receives
/// several messages ahead, of which the descriptor does not tell: call with a timeout of 0 until -EAGAIN before waiting for it.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_mapped_subscriber_fd(subscriber: Option<&MappedSubscriber>) -> c_int {
    call(|| Ok(given(subscriber)?.fd))
}

/// Queries the state of the bus and of this endpoint.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_mapped_subscriber_info(
    subscriber: Option<&mut MappedSubscriber>,
    state: Option<&mut MaybeUninit<BusState>>,
) -> c_int {
    put(state, || {
        Ok(given(subscriber)?.subscriber.idle()?.info()?.into())
    })
}

/// Closes and frees the subscriber, with a message that is held.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_mapped_subscriber_close(subscriber: Option<Box<MappedSubscriber>>) {
    drop(subscriber);
}
