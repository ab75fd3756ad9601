// SPDX-License-Identifier: MIT OR Apache-2.0
//! What all endpoints have in common: they are closed once, and used by one thread at a time, or by several.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use pyo3::PyClass;
use pyo3::exceptions::{PyBufferError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::wait::Limit;

/// An open endpoint of a channel. As a context manager it closes itself.
///
/// An endpoint belongs to the process that opened it: it cannot be pickled.
#[pyclass(subclass, frozen, module = "sluice")]
pub struct Endpoint {
    handle: Arc<dyn Handle>,
}

/// What is closed.
pub trait Handle: Send + Sync {
    fn fd(&self) -> RawFd;
    fn is_closed(&self) -> bool;
    fn close(&self) -> PyResult<()>;
}

/// A new object of a class that extends Endpoint, from what it closes.
pub fn extend<T: PyClass<BaseType = Endpoint>, H: Handle + 'static>(
    handle: Arc<H>,
    class: impl FnOnce(Arc<H>) -> T,
) -> PyClassInitializer<T> {
    let base = Endpoint {
        handle: handle.clone(),
    };
    PyClassInitializer::from(base).add_subclass(class(handle))
}

#[pymethods]
impl Endpoint {
    /// Closes the endpoint. Closing it again has no effect. A task that waits for it gets ValueError. A call that runs in a thread continues:
    /// see Client.call_async() and Request.reply_async().
    fn close(&self) -> PyResult<()> {
        self.handle.close()
    }

    /// Whether the endpoint is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.handle.is_closed()
    }

    /// The file descriptor, for selectors.
    fn fileno(&self) -> PyResult<RawFd> {
        match self.handle.is_closed() {
            true => Err(closed()),
            false => Ok(self.handle.fd()),
        }
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    /// After an exception, a memoryview in its traceback may keep the endpoint open, up to its deletion.
    #[pyo3(signature = (exception=None, *_rest))]
    fn __exit__(
        slf: &Bound<'_, Self>,
        exception: Option<&Bound<'_, PyAny>>,
        _rest: &Bound<'_, PyTuple>,
    ) -> PyResult<()> {
        match slf.call_method0("close") {
            Ok(_) => Ok(()),
            Err(error) => unless_in_use(slf.py(), error, exception),
        }
    }

    fn __reduce__(slf: &Bound<'_, Self>) -> PyResult<()> {
        let class = slf.get_type().name()?;
        Err(PyTypeError::new_err(format!(
            "cannot pickle a {class}: open it in the process that uses it, or pass a socket of SocketRing.pair()"
        )))
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let class = slf.get_type().name()?;
        let handle = &slf.get().handle;
        Ok(match handle.is_closed() {
            true => format!("<sluice.{class}, closed>"),
            false => format!("<sluice.{class}, descriptor {}>", handle.fd()),
        })
    }
}

/// The result of an __exit__ that has failed. After an exception, a memoryview in its traceback may be the cause.
pub fn unless_in_use(
    py: Python<'_>,
    error: PyErr,
    exception: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    match exception.is_some() && error.is_instance_of::<PyBufferError>(py) {
        true => Ok(()),
        false => Err(error),
    }
}

pub fn closed() -> PyErr {
    PyValueError::new_err("the endpoint is closed")
}

/// An endpoint that one call uses at a time.
pub struct Exclusive<T> {
    fd: RawFd,
    state: Mutex<State<T>>,
}

struct State<T> {
    endpoint: Option<T>,
    /// The memory of the endpoint that a Python object gives access to.
    loan: Option<Arc<Loan>>,
    /// Whether the peer was told that somebody waits by the descriptor, whose wake-up another wait would take.
    is_awaited: bool,
}

/// A part of the memory of an endpoint, which stays mapped until the loan ends.
pub struct Loan {
    pub start: *mut u8,
    pub len: usize,
    exports: AtomicUsize,
    has_ended: AtomicBool,
    /// By a close of the endpoint.
    was_cut_off: AtomicBool,
}

// SAFETY: the address is used by the calls of the buffer protocol only, which hold the GIL.
unsafe impl Send for Loan {}
// SAFETY: as above.
unsafe impl Sync for Loan {}

impl Loan {
    pub fn add_export(&self) {
        self.exports.fetch_add(1, Ordering::Relaxed);
    }

    pub fn remove_export(&self) {
        self.exports.fetch_sub(1, Ordering::Relaxed);
    }

    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }

    pub fn was_cut_off(&self) -> bool {
        self.was_cut_off.load(Ordering::Relaxed)
    }

    /// Fails while there are memoryviews or arrays of the memory.
    fn end(&self) -> PyResult<()> {
        match self.exports.load(Ordering::Relaxed) {
            0 => self.has_ended.store(true, Ordering::Relaxed),
            exports => {
                return Err(PyBufferError::new_err(format!(
                    "memoryviews or arrays of the record exist, {exports} of them; release or delete them first"
                )));
            }
        }
        Ok(())
    }
}

impl<T> Exclusive<T> {
    pub fn new(endpoint: T) -> Arc<Self>
    where
        T: AsFd,
    {
        Arc::new(Self {
            fd: endpoint.as_fd().as_raw_fd(),
            state: Mutex::new(State {
                endpoint: Some(endpoint),
                loan: None,
                is_awaited: false,
            }),
        })
    }

    /// Uses the endpoint. Fails while another call uses it, such as a call of another thread or of a signal handler.
    pub fn with<R>(&self, call: impl FnOnce(&mut T) -> PyResult<R>) -> PyResult<R> {
        let mut state = self.lock()?;
        state.call(call)
    }

    /// As `with`, for a call that may wait.
    pub fn wait<R>(&self, limit: Limit, call: impl FnOnce(&mut T) -> PyResult<R>) -> PyResult<R> {
        let mut state = self.lock()?;
        state.wait(limit, call)
    }

    /// As `with`, for a call that announces a wait by the descriptor, and returns whether there is one.
    pub fn announce(&self, call: impl FnOnce(&mut T) -> PyResult<bool>) -> PyResult<bool> {
        let mut state = self.lock()?;
        let is_awaited = state.call(call)?;
        state.is_awaited = is_awaited;
        Ok(is_awaited)
    }

    /// As `with`, for the end of an announced wait.
    pub fn finish(&self, call: impl FnOnce(&mut T)) -> PyResult<()> {
        let mut state = self.lock()?;
        state.is_awaited = false;
        state.call(|endpoint| {
            call(endpoint);
            Ok(())
        })
    }

    /// As `wait`, for a call that returns a part of the memory, to which it then gives access until the loan ends.
    pub fn lend(
        &self,
        limit: Limit,
        call: impl FnOnce(&mut T) -> PyResult<(*mut u8, usize)>,
    ) -> PyResult<Arc<Loan>> {
        let mut state = self.lock()?;
        let (start, len) = state.wait(limit, call)?;
        let loan = Arc::new(Loan {
            start,
            len,
            exports: AtomicUsize::new(0),
            has_ended: AtomicBool::new(false),
            was_cut_off: AtomicBool::new(false),
        });
        state.loan = Some(loan.clone());
        Ok(loan)
    }

    /// Ends the loan by a call. Has no effect if it has ended, as by a close.
    pub fn end_loan(&self, loan: &Loan, call: impl FnOnce(&mut T) -> PyResult<()>) -> PyResult<()> {
        if loan.has_ended() {
            return Ok(());
        }
        let mut state = self.lock()?;
        state.end_loan()?;
        state.call(call)
    }

    /// Closes the endpoint by a call.
    pub fn take(&self, call: impl FnOnce(T)) -> PyResult<()> {
        let mut state = self.lock()?;
        state.call(|_| Ok(()))?;
        state.endpoint.take().map(call);
        Ok(())
    }

    fn lock(&self) -> PyResult<MutexGuard<'_, State<T>>> {
        match self.state.try_lock() {
            Ok(state) => Ok(state),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => Err(PyRuntimeError::new_err(
                "another call uses the endpoint; use one endpoint per thread",
            )),
        }
    }
}

impl<T> State<T> {
    fn end_loan(&mut self) -> PyResult<()> {
        if let Some(loan) = &self.loan {
            loan.end()?;
        }
        self.loan = None;
        Ok(())
    }

    fn wait<R>(&mut self, limit: Limit, call: impl FnOnce(&mut T) -> PyResult<R>) -> PyResult<R> {
        match self.is_awaited && !limit.is_now() {
            true => Err(PyRuntimeError::new_err(
                "a task or a selector waits for the endpoint; use one endpoint for each",
            )),
            false => self.call(call),
        }
    }

    fn call<R>(&mut self, call: impl FnOnce(&mut T) -> PyResult<R>) -> PyResult<R> {
        match (&mut self.endpoint, &self.loan) {
            (_, Some(_)) => Err(PyBufferError::new_err(
                "a record is in use; release it first",
            )),
            (Some(endpoint), None) => call(endpoint),
            (None, None) => Err(closed()),
        }
    }
}

impl<T: Send> Handle for Exclusive<T> {
    fn fd(&self) -> RawFd {
        self.fd
    }

    /// An endpoint in use is open.
    fn is_closed(&self) -> bool {
        self.lock().is_ok_and(|state| state.endpoint.is_none())
    }

    /// A record that is not released yet is not received.
    fn close(&self) -> PyResult<()> {
        let mut state = self.lock()?;
        if let Some(loan) = state.loan.clone() {
            state.end_loan()?;
            loan.was_cut_off.store(true, Ordering::Relaxed);
        }
        state.endpoint = None;
        Ok(())
    }
}

/// An endpoint that several threads may use at the same time. Calls in progress keep it open.
pub struct Shared<T> {
    fd: RawFd,
    endpoint: Mutex<Option<Arc<T>>>,
}

impl<T> Shared<T> {
    pub fn new(endpoint: T) -> Arc<Self>
    where
        T: AsFd,
    {
        Arc::new(Self {
            fd: endpoint.as_fd().as_raw_fd(),
            endpoint: Mutex::new(Some(Arc::new(endpoint))),
        })
    }

    pub fn get(&self) -> PyResult<Arc<T>> {
        self.lock().clone().ok_or_else(closed)
    }

    /// It is locked for moments only.
    fn lock(&self) -> MutexGuard<'_, Option<Arc<T>>> {
        self.endpoint.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Send + Sync> Handle for Shared<T> {
    fn fd(&self) -> RawFd {
        self.fd
    }

    fn is_closed(&self) -> bool {
        self.lock().is_none()
    }

    fn close(&self) -> PyResult<()> {
        let closed = self.lock().take();
        drop(closed);
        Ok(())
    }
}
