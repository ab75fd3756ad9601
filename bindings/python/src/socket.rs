// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rings over a Unix socket.

use std::io::{self, ErrorKind};
use std::os::fd::{FromRawFd as _, IntoRawFd as _, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use sluice::Wait;
use sluice::ring::{self, SetupError, Socket, SocketOptions};

use crate::endpoint::{Endpoint, Shared, extend};
use crate::error::OrRaise as _;
use crate::options::{Keywords, apply};
use crate::ring::{Consumer, Producer};
use crate::wait::{Pending as _, Seconds, in_thread, readable, wait_for};

/// The pause between two attempts to connect to a listener with too many pending connections.
const CONNECT_PAUSE: Duration = Duration::from_millis(5);

/// Rings over a Unix socket, without the module. One process connects to the Listener of the other, or both have one socket each of a pair().
/// One process is the producer, the other one the consumer.
///
/// Options: capacity, huge_pages, numa_node (of the producer), spin_limit, max_capacity, mlock, allow_unsealed, handshake_timeout,
/// allow_users, allow_everyone.
#[pyclass(frozen, module = "sluice")]
pub struct SocketRing;

#[pymethods]
impl SocketRing {
    /// Connects to a Listener. Returns a socket, for producer() or consumer().
    #[staticmethod]
    #[pyo3(signature = (path, timeout=None))]
    fn connect<'py>(
        py: Python<'py>,
        path: PathBuf,
        timeout: Option<Seconds>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let attempt = |path: &mut PathBuf| match Socket::try_connect(path) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(io::Error::pending()),
            connected => Ok(connected.or_raise(py)),
        };
        let pause = |_: &mut PathBuf, time: Duration| {
            thread::sleep(time.min(CONNECT_PAUSE));
            Ok(())
        };
        let socket = wait_for(py, timeout.into(), &mut path.clone(), attempt, pause)?;
        as_socket(py, socket)
    }

    /// A connected pair of sockets, for two processes. Each process closes the socket of the other one: otherwise the death of that process
    /// is not detected.
    #[staticmethod]
    fn pair(py: Python<'_>) -> PyResult<(Bound<'_, PyAny>, Bound<'_, PyAny>)> {
        let (here, there) = Socket::pair().or_raise(py)?;
        Ok((as_socket(py, here)?, as_socket(py, there)?))
    }

    /// Sets up the sending side over a socket, which is closed with it. Waits for the other side up to the handshake_timeout, 5 s by
    /// default.
    #[staticmethod]
    #[pyo3(signature = (socket, **options))]
    fn producer(
        py: Python<'_>,
        socket: &Bound<'_, PyAny>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<Producer>> {
        let options = socket_options(options)?;
        let socket = take_socket(socket)?;
        Producer::new(
            py,
            in_thread(py, move || options.producer(socket))?.or_raise(py)?,
        )
    }

    /// Sets up the receiving side over a socket, as producer() does the sending side.
    #[staticmethod]
    #[pyo3(signature = (socket, **options))]
    fn consumer(
        py: Python<'_>,
        socket: &Bound<'_, PyAny>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<Consumer>> {
        let options = socket_options(options)?;
        let socket = take_socket(socket)?;
        Consumer::new(
            py,
            in_thread(py, move || options.consumer(socket))?.or_raise(py)?,
        )
    }
}

fn socket_options(keywords: Option<&Bound<'_, PyDict>>) -> PyResult<SocketOptions> {
    let keywords = Keywords::new(keywords)?;
    let mut options = SocketOptions::new();
    apply!(options, keywords;
        capacity: u64, huge_pages: bool, numa_node: u32, spin_limit: Seconds, max_capacity: u64, mlock: bool, allow_unsealed: bool,
        handshake_timeout: Seconds);
    for user in keywords
        .take::<Vec<u32>>("allow_users")?
        .unwrap_or_default()
    {
        options = options.allow_user(user);
    }
    if keywords.take("allow_everyone")?.unwrap_or(false) {
        options = options.allow_everyone();
    }
    keywords.finish()?;
    Ok(options)
}

fn as_socket(py: Python<'_>, socket: Socket) -> PyResult<Bound<'_, PyAny>> {
    let keywords = PyDict::new(py);
    keywords.set_item("fileno", OwnedFd::from(socket).into_raw_fd())?;
    py.import("socket")?
        .getattr("socket")?
        .call((), Some(&keywords))
}

/// The descriptor of a socket object, which is closed for Python from then on.
fn take_socket(socket: &Bound<'_, PyAny>) -> PyResult<Socket> {
    match socket.call_method0("detach")?.extract::<RawFd>()? {
        // SAFETY: detach() gives up the descriptor, which it has checked to be open.
        fd @ 0.. => Ok(unsafe { OwnedFd::from_raw_fd(fd) }.into()),
        _ => Err(PyValueError::new_err("the socket is closed")),
    }
}

/// A listening Unix socket at a path, for SocketRing. Closing it removes the path. A socket at the path whose process has ended is replaced.
#[pyclass(extends = Endpoint, frozen, module = "sluice")]
pub struct Listener {
    listener: Arc<Shared<ring::Listener>>,
}

#[pymethods]
impl Listener {
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<PyClassInitializer<Self>> {
        let listener = ring::Listener::bind(path).or_raise(py)?;
        Ok(extend(Shared::new(listener), |listener| Self { listener }))
    }

    /// Waits for the next connection. Returns its socket, for SocketRing.producer() or consumer().
    #[pyo3(signature = (timeout=None))]
    fn accept<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<Seconds>,
    ) -> PyResult<Bound<'py, PyAny>> {
        // Another process that has the listener may accept the connection first.
        let attempt = |listener: &mut Arc<ring::Listener>| match listener.accept_within(Wait::Never)
        {
            Err(SetupError::System(error)) if error.kind() == ErrorKind::WouldBlock => {
                Err(io::Error::pending())
            }
            accepted => Ok(accepted.or_raise(py)),
        };
        let socket = wait_for(
            py,
            timeout.into(),
            &mut self.listener.get()?,
            attempt,
            readable,
        )?;
        as_socket(py, socket)
    }
}
