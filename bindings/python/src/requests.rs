// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests and replies. A call sends its request once, so that it cannot be repeated after a part of the wait: it is a future, which a
//! signal drops.

use std::error::Error as StdError;
use std::future::Future;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::pin;
use std::process;
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
use crate::endpoint::{Endpoint, Exclusive, Shared, extend};
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

/// What executes the futures of an endpoint, in the process that has opened it: a child has the same instance of epoll.
struct Executor {
    runtime: Runtime,
    process: u32,
}

impl Executor {
    fn check_process(&self) -> PyResult<()> {
        match process::id() == self.process {
            true => Ok(()),
            false => Err(PyRuntimeError::new_err(
                "this process is a child of the one that opened the endpoint; open another one",
            )),
        }
    }

    /// Waits for a future, which is dropped if the handler of a signal raises, or `cancelled` is set.
    fn block_on<T: Send, E: Pending>(
        &self,
        py: Python<'_>,
        limit: Limit,
        cancelled: Option<&Bound<'_, PyAny>>,
        future: impl Future<Output = Result<T, E>> + Send,
    ) -> PyResult<T> {
        self.check_process()?;
        let mut future = pin!(future);
        let waiting = Waiting::new(limit);
        loop {
            // The last attempt is after the timeout.
            let slice = waiting.slice::<E>();
            let time = slice.as_ref().copied().unwrap_or_default();
            let attempt = async { time::timeout(time, future.as_mut()).await };
            if let Ok(done) = py.detach(|| self.runtime.block_on(attempt)) {
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
}

/// An end of the asynchronous library.
struct AsyncEnd<T> {
    end: T,
    executor: Arc<Executor>,
    descriptor: OwnedFd,
}

impl<T> AsyncEnd<T> {
    fn new<S: AsFd, E: StdError + 'static>(
        py: Python<'_>,
        end: S,
        wrap: impl FnOnce(S) -> Result<T, E>,
    ) -> PyResult<Self> {
        let descriptor = end.as_fd().try_clone_to_owned()?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let entered = runtime.enter();
        let end = wrap(end).or_raise(py)?;
        drop(entered);
        let process = process::id();
        let executor = Arc::new(Executor { runtime, process });
        Ok(Self {
            end,
            executor,
            descriptor,
        })
    }
}

impl<T> AsFd for AsyncEnd<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Sends requests to the servers of a bus, each to the next one, and returns their replies. Several threads may use it at the same time.
///
/// A call ends with the reply, or at once when it is known that none comes: PeerDied, if its server has ended, or NotConnected, if there is
/// none. It waits for a server that is slow, so give it a timeout.
#[pyclass(extends = Endpoint, frozen, module = "sluice")]
pub struct Client {
    client: Arc<Shared<AsyncEnd<AsyncClient>>>,
}

impl Client {
    pub fn new(py: Python<'_>, client: bus::Client) -> PyResult<Py<Self>> {
        let client = Shared::new(AsyncEnd::new(py, client, AsyncClient::new)?);
        Py::new(py, extend(client, |client| Self { client }))
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
        let client = self.client.get()?;
        let request = request.as_slice(py).to_vec();
        let call = client.end.call(&request);
        let reply = client
            .executor
            .block_on(py, timeout.into(), _cancelled, call)?;
        Ok(PyBytes::new(py, &reply))
    }

    /// The id of the endpoint, which no other endpoint of the bus ever has.
    #[getter]
    fn id(&self) -> PyResult<u64> {
        Ok(self.client.get()?.end.id())
    }

    /// The state of the bus and of this endpoint: a BusInfo.
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        bus_info(py, &self.client.get()?.end.info().or_raise(py)?)
    }
}

/// Receives the requests of clients. The requests of a bus go to its servers in turn. Iteration ends when the bus is destroyed.
///
/// One thread receives; any threads answer.
#[pyclass(extends = Endpoint, frozen, module = "sluice")]
pub struct Server {
    server: Arc<Exclusive<AsyncEnd<AsyncServer>>>,
}

impl Server {
    pub fn new(py: Python<'_>, server: bus::Server) -> PyResult<Py<Self>> {
        let server = Exclusive::new(AsyncEnd::new(py, server, AsyncServer::new)?);
        Py::new(py, extend(server, |server| Self { server }))
    }
}

#[pymethods]
impl Server {
    /// Returns the next Request. Waits for one. Fails with Closed when the bus is destroyed.
    #[pyo3(signature = (timeout=None))]
    fn recv(&self, py: Python<'_>, timeout: Option<Seconds>) -> PyResult<Py<Request>> {
        let limit = Limit::from(timeout);
        self.server.with(|server| {
            server.executor.check_process()?;
            let request = match server.end.try_recv() {
                Err(RecvError::Empty) if !limit.is_now() => {
                    server
                        .executor
                        .block_on(py, limit, None, server.end.recv())?
                }
                received => received.or_raise(py)?,
            };
            let message = Message::new(py, &request, request.bytes());
            let request = Mutex::new(Some(request));
            let executor = server.executor.clone();
            Py::new(py, (Request { request, executor }, message))
        })
    }

    /// The id of the endpoint, which no other endpoint of the bus ever has.
    #[getter]
    fn id(&self) -> PyResult<u64> {
        self.server.with(|server| Ok(server.end.id()))
    }

    /// The state of the bus and of this endpoint: a BusInfo.
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let state = self.server.with(|server| server.end.info().or_raise(py))?;
        bus_info(py, &state)
    }
}

/// A request of a client, which any thread may answer once. If it is not answered, its client keeps waiting.
#[pyclass(extends = Message, frozen, module = "sluice")]
pub struct Request {
    request: Mutex<Option<AsyncRequest>>,
    executor: Arc<Executor>,
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
        self.executor
            .block_on::<(), SendError>(py, timeout.into(), _cancelled, replied)
    }
}
