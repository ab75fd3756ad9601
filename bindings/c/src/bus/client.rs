// SPDX-License-Identifier: MIT OR Apache-2.0
//! The clients of a bus.

use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;

use sluice::bus;

use super::message::Message;
use super::options::{BusOptions, named};
use super::state::BusState;
use crate::input::{Timeout, bytes, given};
use crate::result::{give, put};

/// Sends requests to the servers of a bus, each to the next one. Use one client per thread and process.
pub struct Client(bus::Client);

/// Opens a multicast bus to send requests to its servers. Fails with -ENOENT if no server has created the bus yet, unless SLUICE_CREATE is
/// set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_bus_open_client(
    name: *const c_char,
    options: *const BusOptions,
    client: Option<&mut MaybeUninit<*mut Client>>,
) -> c_int {
    give(client, || {
        // SAFETY: the conventions.
        Ok(Client(unsafe { named(name, options) }?.client()?))
    })
}

/// Sends a request to the next server, and waits for its reply, which is valid until the next call of the client. Fails with -ENOTCONN if
/// the bus has no server, with -ECONNRESET at once if the server ends without a reply, with -ENOBUFS if the reply was lost, and with
/// -ETIMEDOUT, also if the timeout is 0. A request is sent once: except after -ENOTCONN, -EMSGSIZE and -EINVAL the server may have received it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_client_call(
    client: Option<&mut Client>,
    request: *const c_void,
    length: usize,
    reply: Option<&mut MaybeUninit<Message>>,
    timeout_ms: c_int,
) -> c_int {
    put(reply, || {
        // SAFETY: the conventions.
        let request = unsafe { bytes(request, length) }?;
        let client = &mut given(client)?.0;
        Ok(client.call_within(request, Timeout(timeout_ms))?)
    })
}

/// Queries the state of the bus and of this endpoint.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_client_info(
    client: Option<&Client>,
    state: Option<&mut MaybeUninit<BusState>>,
) -> c_int {
    put(state, || Ok(given(client)?.0.info()?))
}

/// Closes and frees the client.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_client_close(client: Option<Box<Client>>) {
    drop(client);
}
