// SPDX-License-Identifier: MIT OR Apache-2.0
//! The servers of a bus, and the requests that they have received.

use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd as _;

use sluice::bus;

use super::message::Message;
use super::options::{BusOptions, named};
use super::state::BusState;
use crate::input::{Timeout, bytes, given};
use crate::result::{call, give, put};

/// Receives requests of clients. One thread at a time may use it; its requests may be answered by other threads at the same time, also
/// after it was closed.
pub struct Server(bus::Server);

/// A request that a server has received, which any thread may answer. If it is freed without a reply, its client keeps waiting until its
/// timeout.
pub struct Request(bus::Request);

/// Opens a multicast bus to receive requests and send replies. If it creates the bus, the subscribers may have every policy unless the
/// options say otherwise. The policy of a server cannot be SLUICE_POLICY_DROP.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_bus_open_server(
    name: *const c_char,
    options: *const BusOptions,
    server: Option<&mut MaybeUninit<*mut Server>>,
) -> c_int {
    give(server, || {
        // SAFETY: the conventions.
        Ok(Server(unsafe { named(name, options) }?.server()?))
    })
}

/// Receives the next request. Waits for one. Has the errors of sluice_subscriber_recv().
#[unsafe(no_mangle)]
pub extern "C" fn sluice_server_recv(
    server: Option<&mut Server>,
    request: Option<&mut MaybeUninit<*mut Request>>,
    timeout_ms: c_int,
) -> c_int {
    give(request, || {
        let server = &mut given(server)?.0;
        let request = Timeout(timeout_ms).run(|wait| server.recv_within(wait))?;
        Ok(Request(request))
    })
}

/// The descriptor of the endpoint, which is readable when there is a request, or the bus has ended. A reply that waits for room can receive
/// requests ahead. The descriptor does not tell of them: call sluice_server_recv() with a timeout of 0 until -EAGAIN before waiting for it.
/// It belongs to the server.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_server_fd(server: Option<&Server>) -> c_int {
    call(|| Ok(given(server)?.0.as_raw_fd()))
}

/// Queries the state of the bus and of this endpoint.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_server_info(
    server: Option<&Server>,
    state: Option<&mut MaybeUninit<BusState>>,
) -> c_int {
    put(state, || Ok(given(server)?.0.info()?))
}

/// Closes and frees the server. The endpoint is closed when its last request is freed, too.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_server_close(server: Option<Box<Server>>) {
    drop(server);
}

/// Stores the address of the bytes of a request, and its header. The bytes are valid until the request is answered or freed.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_request_message(
    request: Option<&Request>,
    message: Option<&mut MaybeUninit<Message>>,
) -> c_int {
    put(message, || {
        let request = &given(request)?.0;
        Ok(Message::new(request.header(), request.bytes().as_ptr()))
    })
}

/// Sends the reply, and frees the request, whatever is returned. Waits for room; meanwhile it receives requests ahead that hold it. Fails
/// with -ENOENT if the client has ended, and with -ETIMEDOUT, also if the timeout is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_request_reply(
    request: Option<Box<Request>>,
    reply: *const c_void,
    length: usize,
    timeout_ms: c_int,
) -> c_int {
    call(|| {
        let request = given(request)?.0;
        // SAFETY: the conventions.
        let reply = unsafe { bytes(reply, length) }?;
        Ok(request.reply_within(reply, Timeout(timeout_ms))?)
    })
}

/// Frees a request without a reply.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_request_drop(request: Option<Box<Request>>) {
    drop(request);
}
