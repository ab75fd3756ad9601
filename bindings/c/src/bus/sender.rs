// SPDX-License-Identifier: MIT OR Apache-2.0
//! The senders of a bus.

use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd as _;
use std::ptr;

use libc::ssize_t;
use sluice::bus;

use super::options::{BusOptions, named};
use super::state::{BusState, SubscriberState, list};
use super::subscriber::Subscriber;
use crate::input::{Timeout, array_mut, bytes, given, owned};
use crate::result::{boxed, call, give, put};

/// Sends messages on a bus. Several threads may use it at the same time. A child of fork(2) may use it; the endpoint is closed when both
/// processes have closed it.
pub struct Sender(bus::Sender);

/// Opens a bus to send.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_bus_open_sender(
    name: *const c_char,
    options: *const BusOptions,
    sender: Option<&mut MaybeUninit<*mut Sender>>,
) -> c_int {
    give(sender, || {
        // SAFETY: the conventions.
        Ok(Sender(unsafe { named(name, options) }?.sender()?))
    })
}

/// Opens a bus to send and to receive, through one endpoint with one id. In the mode broadcast the subscriber also receives the
/// messages of the sender. Close both.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_bus_open_endpoint(
    name: *const c_char,
    options: *const BusOptions,
    sender: Option<&mut MaybeUninit<*mut Sender>>,
    subscriber: Option<&mut MaybeUninit<*mut Subscriber>>,
) -> c_int {
    call(|| {
        let (sender, subscriber) = (given(sender)?, given(subscriber)?);
        sender.write(ptr::null_mut());
        subscriber.write(ptr::null_mut());
        // SAFETY: the conventions.
        let (sends, receives) = unsafe { named(name, options) }?.endpoint()?;
        sender.write(boxed(Sender(sends)));
        subscriber.write(boxed(receives));
        Ok(())
    })
}

/// Uses an endpoint that was inherited or received. The descriptor belongs to the library from then on, also after a failure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_sender_attach(
    fd: c_int,
    sender: Option<&mut MaybeUninit<*mut Sender>>,
) -> c_int {
    // SAFETY: the conventions.
    let endpoint = unsafe { owned(fd) };
    give(sender, || Ok(Sender(bus::Sender::attach(endpoint?)?)))
}

/// Sends a message to the subscribers that the mode of the bus selects. Waits while a subscriber that blocks senders has no room.
/// Fails with -EPIPE if the bus was destroyed, with -ENOTCONN if a multicast bus has no subscriber, and with -EMSGSIZE if the message is
/// too long.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_sender_send(
    sender: Option<&Sender>,
    message: *const c_void,
    length: usize,
    timeout_ms: c_int,
) -> c_int {
    call(|| {
        // SAFETY: the conventions.
        let message = unsafe { bytes(message, length) }?;
        let sender = &given(sender)?.0;
        Timeout(timeout_ms).run(|wait| sender.send_within(message, wait))
    })
}

/// Sends a message to one subscriber, whose id is in its messages and in the list of subscribers. Fails with -ENOENT if the subscriber has
/// ended; also has the errors of sluice_sender_send(). Not in the mode unicast, and not on a mappable bus.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_sender_send_to(
    sender: Option<&Sender>,
    id: u64,
    message: *const c_void,
    length: usize,
    timeout_ms: c_int,
) -> c_int {
    call(|| {
        // SAFETY: the conventions.
        let message = unsafe { bytes(message, length) }?;
        let sender = &given(sender)?.0;
        Timeout(timeout_ms).run(|wait| sender.send_to_within(id, message, wait))
    })
}

/// The descriptor of the endpoint, which is writable when the largest message fits into the ring; a subscriber may be full nevertheless. It
/// belongs to the sender.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_sender_fd(sender: Option<&Sender>) -> c_int {
    call(|| Ok(given(sender)?.0.as_raw_fd()))
}

/// Queries the state of the bus and of this endpoint.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_sender_info(
    sender: Option<&Sender>,
    state: Option<&mut MaybeUninit<BusState>>,
) -> c_int {
    put(state, || Ok(given(sender)?.0.info()?))
}

/// Stores up to `count` subscribers of the bus, by id, and returns the number of all. In the mode unicast only monitors have ids.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_sender_subscribers(
    sender: Option<&Sender>,
    subscribers: *mut SubscriberState,
    count: usize,
) -> ssize_t {
    call(|| {
        // SAFETY: the conventions.
        let room = unsafe { array_mut(subscribers.cast(), count) }?;
        Ok(list(&given(sender)?.0.subscribers()?, room))
    })
}

/// Closes and frees the sender.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_sender_close(sender: Option<Box<Sender>>) {
    drop(sender);
}
