// SPDX-License-Identifier: MIT OR Apache-2.0
//! The subscribers of a bus that map its memory.

use std::ffi::{c_char, c_int};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd as _;

use sluice::bus;

use super::message::Message;
use super::options::{BusOptions, named};
use super::state::BusState;
use crate::held::{Holder, holding, idle};
use crate::input::{Timeout, given, owned};
use crate::result::{call, give, put};

/// Receives the messages of a bus in place. Senders wait for it. One thread at a time may use it; in a child of the process that has opened
/// it, a release has no effect.
///
/// Calls with a timeout set O_NONBLOCK of the descriptor, and those without clear it. While it holds a message, calls that receive or flush
/// fail with -EBUSY.
pub struct MappedSubscriber(bus::MappedSubscriber);

impl Holder for MappedSubscriber {
    fn is_holding(&self) -> bool {
        self.0.is_holding()
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
        Ok(MappedSubscriber(
            unsafe { named(name, options) }?.mapped_subscriber()?,
        ))
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
        Ok(MappedSubscriber(bus::MappedSubscriber::attach(endpoint?)?))
    })
}

/// Receives the next message in place, at an address that is a multiple of 8. Waits for a message. The subscriber holds it until
/// sluice_mapped_subscriber_release(). Has the errors of sluice_subscriber_recv().
#[unsafe(no_mangle)]
pub extern "C" fn sluice_mapped_subscriber_recv(
    subscriber: Option<&mut MappedSubscriber>,
    message: Option<&mut MaybeUninit<Message>>,
    timeout_ms: c_int,
) -> c_int {
    put(message, || {
        let subscriber = &mut idle(subscriber)?.0;
        Timeout(timeout_ms).run(|wait| {
            let received = subscriber.recv_within(wait)?;
            let message = Message::from(&received);
            received.hold();
            Ok::<_, bus::RecvError>(message)
        })
    })
}

/// Releases the message. Senders get its room with the next call that receives, or when released messages hold an eighth of the capacity;
/// sluice_mapped_subscriber_flush() does not wait for that.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_mapped_subscriber_release(
    subscriber: Option<&mut MappedSubscriber>,
) -> c_int {
    call(|| {
        holding(subscriber)?.0.release_held();
        Ok(())
    })
}

/// Gives senders the room of all released messages.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_mapped_subscriber_flush(
    subscriber: Option<&mut MappedSubscriber>,
) -> c_int {
    call(|| Ok(idle(subscriber)?.0.release()?))
}

/// The descriptor of the endpoint, which is readable when there is a message that was not received, or the bus has ended. A call
/// receives several messages ahead. The descriptor does not tell of them: call with a timeout of 0 until -EAGAIN before waiting for it. It
/// belongs to the subscriber.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_mapped_subscriber_fd(subscriber: Option<&MappedSubscriber>) -> c_int {
    call(|| Ok(given(subscriber)?.0.as_raw_fd()))
}

/// Queries the state of the bus and of this endpoint.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_mapped_subscriber_info(
    subscriber: Option<&MappedSubscriber>,
    state: Option<&mut MaybeUninit<BusState>>,
) -> c_int {
    put(state, || Ok(given(subscriber)?.0.info()?))
}

/// Closes and frees the subscriber. A message that it holds is released.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_mapped_subscriber_close(subscriber: Option<Box<MappedSubscriber>>) {
    drop(subscriber);
}
