// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rings over Unix sockets, without the module.

use std::ffi::{c_char, c_int};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, IntoRawFd as _, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use sluice::ring::{self, SetupError, Socket};

use super::consumer::Consumer;
use super::options::SocketRingOptions;
use super::producer::Producer;
use crate::error::{Failure, Result};
use crate::input::{Wait, array_mut, given, options, owned, path};
use crate::result::{call, give};

/// How often a connect with a timeout is repeated while too many connections are pending.
const CONNECT_PAUSE: Duration = Duration::from_millis(1);

/// A Unix socket at a path, which accepts connections for rings. Several threads may use it at the same time.
pub struct Listener {
    listener: ring::Listener,
}

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
        let listener = ring::Listener::bind(path)?;
        Ok(Listener { listener })
    })
}

/// Accepts a connection, and returns its descriptor, for sluice_socket_producer() or sluice_socket_consumer().
#[unsafe(no_mangle)]
pub extern "C" fn sluice_listener_accept(listener: Option<&Listener>, timeout_ms: c_int) -> c_int {
    call(|| {
        let listener = &given(listener)?.listener;
        if timeout_ms >= 0 {
            wait_readable(listener.as_fd().as_raw_fd(), timeout_ms)?;
        }
        Ok(OwnedFd::from(listener.accept()?).into_raw_fd())
    })
}

/// Waits for a connection up to the timeout, in spite of signals.
fn wait_readable(fd: c_int, timeout_ms: c_int) -> Result<()> {
    let limit = Duration::from_millis(timeout_ms.unsigned_abs().into());
    let began = Instant::now();
    loop {
        let mut asked = libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        let left = limit.saturating_sub(began.elapsed()).as_nanos();
        // It is at most the timeout, rounded up.
        let left = left.div_ceil(1_000_000) as c_int;
        // SAFETY: it is one structure.
        match unsafe { libc::poll(&raw mut asked, 1, left) } {
            1.. => return Ok(()),
            0 => return Err(no_connection(timeout_ms)),
            _ => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error.into()),
            },
        }
    }
}

fn no_connection(timeout_ms: c_int) -> Failure {
    let hint = c"use a longer timeout, or start the peer";
    Failure::new(libc::ETIMEDOUT, c"no connection within the timeout", hint).at_once(timeout_ms)
}

/// The descriptor of the socket, which is readable when a connection can be accepted. -EINVAL if the listener is NULL.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_listener_fd(listener: Option<&Listener>) -> c_int {
    call(|| Ok(given(listener)?.listener.as_fd().as_raw_fd()))
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
        let began = Instant::now();
        loop {
            let connected = match timeout_ms {
                ..0 => Socket::connect(path),
                _ => Socket::try_connect(path),
            };
            match (connected, Wait::from(timeout_ms)) {
                (Err(error), Wait::For(limit)) if is_full(&error) => {
                    if began.elapsed() >= limit {
                        return Err(no_connection(timeout_ms));
                    }
                    thread::sleep(CONNECT_PAUSE);
                }
                (connected, _) => return Ok(OwnedFd::from(connected?).into_raw_fd()),
            }
        }
    })
}

fn is_full(error: &SetupError) -> bool {
    error.raw_os_error() == Some(libc::EAGAIN)
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
        Ok(0)
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
        Ok(Producer::new(options.producer(socket?.into())?))
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
        Ok(Consumer::new(options.consumer(socket?.into())?))
    })
}
