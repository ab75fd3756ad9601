// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rings over Unix sockets, without the module.

use std::ffi::{c_char, c_int};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, IntoRawFd as _, OwnedFd};

use sluice::ring::{self, SetupError, Socket};

use super::consumer::Consumer;
use super::options::SocketRingOptions;
use super::producer::Producer;
use crate::error::{Failure, Result};
use crate::input::{Timeout, array_mut, given, options, owned, path};
use crate::result::{call, give};

/// A Unix socket at a path, which accepts connections for rings. Several threads may use it at the same time. A child of fork(2) may use it,
/// too.
pub struct Listener(ring::Listener);

/// Creates a Unix socket at a path. One at which no process listens any more, as after a kill, is replaced. The mode of the socket, which
/// the umask decides, and then the allowed users of struct sluice_socket_options decide which peers may connect.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_listener_bind(
    path: *const c_char,
    listener: Option<&mut MaybeUninit<*mut Listener>>,
) -> c_int {
    give(listener, || {
        // SAFETY: the conventions.
        let path = unsafe { self::path(path) }?;
        Ok(Listener(ring::Listener::bind(path)?))
    })
}

/// Accepts a connection, and returns its descriptor, for sluice_socket_producer() or sluice_socket_consumer(). Waits for a connection.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_listener_accept(listener: Option<&Listener>, timeout_ms: c_int) -> c_int {
    call(|| {
        connected(
            given(listener)?.0.accept_within(Timeout(timeout_ms)),
            timeout_ms,
        )
    })
}

/// The descriptor of a connection that was made within the timeout.
fn connected(
    socket: std::result::Result<Socket, SetupError>,
    timeout_ms: c_int,
) -> Result<OwnedFd> {
    match socket {
        Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {
            let errno = match timeout_ms {
                0 => libc::EAGAIN,
                _ => libc::ETIMEDOUT,
            };
            let hint = c"use a longer timeout, or start the peer";
            Err(Failure::new(
                errno,
                c"no connection within the timeout",
                hint,
            ))
        }
        socket => Ok(socket?.into()),
    }
}

/// The descriptor of the socket, which is readable when a connection can be accepted. -EINVAL if the listener is NULL.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_listener_fd(listener: Option<&Listener>) -> c_int {
    call(|| Ok(given(listener)?.0.as_fd().as_raw_fd()))
}

/// Closes the socket and removes its path. In a child of the process that has bound it, the path remains.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_listener_close(listener: Option<Box<Listener>>) {
    drop(listener);
}

/// Connects to a listener, and returns the descriptor of the connection. Waits while too many connections are pending.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_socket_connect(path: *const c_char, timeout_ms: c_int) -> c_int {
    call(|| {
        // SAFETY: the conventions.
        let path = unsafe { self::path(path) }?;
        connected(
            Socket::connect_within(path, Timeout(timeout_ms)),
            timeout_ms,
        )
    })
}

/// Makes two connected sockets, for a process and its child, or for two threads. The array has room for two descriptors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_socket_pair(fds: *mut c_int) -> c_int {
    call(|| {
        // SAFETY: the conventions.
        let fds = unsafe { array_mut(fds, 2) }?;
        let (one, other) = Socket::pair()?;
        fds[0] = OwnedFd::from(one).into_raw_fd();
        fds[1] = OwnedFd::from(other).into_raw_fd();
        Ok(())
    })
}

/// Sets up the sending side of a ring over a connected Unix socket of type SOCK_SEQPACKET. Waits for the peer, which sets up the receiving
/// side at the same time, up to `handshake_timeout_ms`. The descriptor belongs to the library from then on, also after a failure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_socket_producer(
    fd: c_int,
    options: *const SocketRingOptions,
    producer: Option<&mut MaybeUninit<*mut Producer>>,
) -> c_int {
    // SAFETY: the conventions.
    let socket = unsafe { owned(fd) };
    give(producer, || {
        // SAFETY: the conventions.
        let options = unsafe { self::options(options)?.options() }?;
        Ok(options.producer(socket?.into())?)
    })
}

/// Sets up the receiving side of a ring over a connected Unix socket. Waits for the peer, and treats the descriptor, as
/// sluice_socket_producer() does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_socket_consumer(
    fd: c_int,
    options: *const SocketRingOptions,
    consumer: Option<&mut MaybeUninit<*mut Consumer>>,
) -> c_int {
    // SAFETY: the conventions.
    let socket = unsafe { owned(fd) };
    give(consumer, || {
        // SAFETY: the conventions.
        let options = unsafe { self::options(options)?.options() }?;
        Ok(options.consumer(socket?.into())?)
    })
}
