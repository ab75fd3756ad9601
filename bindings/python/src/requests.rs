// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests and replies. A call sends its request once, so that it cannot be repeated after a part of the wait: it is a future, which a
//! signal drops.

use std::future::Future;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use sluice::bus::{self, AsyncClient, AsyncRequest, AsyncServer, CallError, RecvError, SendError};
use tokio::runtime::{Builder, Runtime};
use tokio::time;

use crate::buffer::Input;
use crate::bus::{Message, bus_info};
use crate::endpoint::{Endpoint, Exclusive, Shared};
use crate::error::OrRaise as _;
use crate::wait::{Limit, Pending, Seconds, Waiting};

impl Pending for CallError {
    fn pending() -> Self {
        Self::TimedOut(Duration::ZERO)
    }

    fn timed_out(limit: Duration) -> Self {
        Self::TimedOut(limit)
    }

    fn is_pending(&self) -> bool {
        matches!(self, Self::TimedOut(_))
    }
}

/// Waits for a future, which is dropped if the handler of a signal raises, or `cancelled` is set.
fn block_on<T: Send, E: Pending>(
    py: Python<'_>,
    runtime: &Runtime,
    limit: Limit,
    cancelled: Option<&Bound<'_, PyAny>>,
    future: impl Future<Output = Result<T, E>> + Send,
) -> PyResult<T> {
    let mut future = pin!(future);
    let waiting = Waiting::new(limit);
    loop {
        // The last attempt is after the timeout.
        let slice = waiting.slice::<E>();
        let time = slice.as_ref().copied().unwrap_or_default();
        let future = future.as_mut();
        if let Ok(done) =
            py.detach(|| runtime.block_on(async { time::timeout(time, future).await }))
        {
            return done.or_raise(py);
        }
        py.check_signals()?;
        slice.or_raise(py)?;
        if let Some(event) = cancelled {
            if event.call_method0("is_set")?.is_truthy()? {
                return Err(PyRuntimeError::new_err("the call is cancelled"));
            }
        }
    }
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// Sends requests to the servers of a bus, each to the next one, and returns their replies. Several threads may use it at the same time.
///
/// A call ends with the reply, or at once when it is known that none comes: PeerDied, if its server has ended, or NotConnected, if there is
/// none. It waits for a server that is slow, so give it a timeout.
#[pyclass(extends = Endpoint, frozen, module = "sluice")]
pub struct Client {
    client: Arc<Shared<ClientEnd>>,
}

struct ClientEnd {
    client: AsyncClient,
    runtime: Runtime,
    _descriptor: OwnedFd,
}

impl Client {
    pub fn new(py: Python<'_>, client: bus::Client) -> PyResult<Py<Self>> {
        let descriptor = client.as_fd().try_clone_to_owned()?;
        let runtime = runtime()?;
        let entered = runtime.enter();
        let client = AsyncClient::new(client).or_raise(py)?;
        drop(entered);
        let fd = descriptor.as_raw_fd();
        let client = Shared::new(
            fd,
            ClientEnd {
                client,
                runtime,
                _descriptor: descriptor,
            },
        );
        let base = Endpoint::new(client.clone());
        Py::new(py, (Self { client }, base))
    }
}

#[pymethods]
impl Client {
    /// Sends a request to the next server, and returns its reply. A request is sent once: after Timeout, PeerDied or KeyboardInterrupt the
    /// server may have received it, and a later reply is discarded.
    #[pyo3(signature = (request, timeout=None, *, _cancelled=None))]
    fn call<'py>(
        &self,
        py: Python<'py>,
        request: Input<'_, '_>,
        timeout: Option<Seconds>,
        _cancelled: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let end = self.client.get_owned()?;
        let request = request.as_slice(py).to_vec();
        let call = end.client.call(&request);
        let reply = block_on(py, &end.runtime, timeout.into(), _cancelled, call)?;
        Ok(PyBytes::new(py, &reply))
    }

    /// The id of the endpoint, which no other endpoint of the bus ever has.
    #[getter]
    fn id(&self) -> PyResult<u64> {
        Ok(self.client.get()?.client.id())
    }

    /// The state of the bus and of this endpoint: a BusInfo.
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        bus_info(py, &self.client.get()?.client.info().or_raise(py)?)
    }
}

/// Receives the requests of clients. The requests of a bus go to its servers in turn. Iteration ends when the bus is destroyed.
///
/// One thread receives; any threads answer.
#[pyclass(extends = Endpoint, frozen, module = "sluice")]
pub struct Server {
    server: Arc<Exclusive<ServerEnd>>,
}

struct ServerEnd {
    server: AsyncServer,
    runtime: Arc<Runtime>,
    process: u32,
    descriptor: OwnedFd,
}

impl AsFd for ServerEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Server {
    pub fn new(py: Python<'_>, server: bus::Server) -> PyResult<Py<Self>> {
        let descriptor = server.as_fd().try_clone_to_owned()?;
        let runtime = Arc::new(runtime()?);
        let entered = runtime.enter();
        let server = AsyncServer::new(server).or_raise(py)?;
        drop(entered);
        let server = Exclusive::new(ServerEnd {
            server,
            runtime,
            process: std::process::id(),
            descriptor,
        });
        let base = Endpoint::new(server.clone());
        Py::new(py, (Self { server }, base))
    }
}

#[pymethods]
impl Server {
    /// Returns the next Request. Waits for one. Fails with Closed when the bus is destroyed.
    #[pyo3(signature = (timeout=None))]
    fn recv(&self, py: Python<'_>, timeout: Option<Seconds>) -> PyResult<Py<Request>> {
        let limit = Limit::from(timeout);
        self.server.with(|end| {
            if end.process != std::process::id() {
                return Err(PyRuntimeError::new_err(
                    "this process is a child of the one that opened the server; open another one",
                ));
            }
            let request = match end.server.try_recv() {
                Err(RecvError::Empty) if !limit.is_now() => {
                    block_on(py, &end.runtime, limit, None, end.server.recv())?
                }
                received => received.or_raise(py)?,
            };
            let message = Message::new(py, &request, request.bytes());
            let request = Mutex::new(Some(request));
            let runtime = end.runtime.clone();
            Py::new(py, (Request { request, runtime }, message))
        })
    }

    /// The id of the endpoint, which no other endpoint of the bus ever has.
    #[getter]
    fn id(&self) -> PyResult<u64> {
        self.server.with(|end| Ok(end.server.id()))
    }

    /// The state of the bus and of this endpoint: a BusInfo.
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let state = self.server.with(|end| end.server.info().or_raise(py))?;
        bus_info(py, &state)
    }
}

/// A request of a client, which any thread may answer once. If it is not answered, its client keeps waiting.
#[pyclass(extends = Message, frozen, module = "sluice")]
pub struct Request {
    request: Mutex<Option<AsyncRequest>>,
    runtime: Arc<Runtime>,
}

#[pymethods]
impl Request {
    /// Sends the reply. Waits for room. Fails with NotFound if the client has ended. After an error the request cannot be answered again.
    #[pyo3(signature = (reply, timeout=None, *, _cancelled=None))]
    fn reply(
        &self,
        py: Python<'_>,
        reply: Input<'_, '_>,
        timeout: Option<Seconds>,
        _cancelled: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let request = self
            .request
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let request =
            request.ok_or_else(|| PyRuntimeError::new_err("the request was answered before"))?;
        let reply = reply.as_slice(py).to_vec();
        let replied = request.reply(&reply);
        block_on::<(), SendError>(py, &self.runtime, timeout.into(), _cancelled, replied)
    }
}
