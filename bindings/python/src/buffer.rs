// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory of Python objects, and memory of endpoints as Python objects.

use std::ffi::c_int;
use std::slice;
use std::sync::Arc;

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use sluice::{Bytes, feed, ring};

use crate::endpoint::{Exclusive, Loan, closed, unless_in_use};
use crate::error::exception;
use crate::wait::Limit;

/// A bytes-like argument.
pub enum Input<'a, 'py> {
    Bytes(Borrowed<'a, 'py, PyBytes>),
    Buffer(PyUntypedBuffer),
}

impl<'a, 'py> FromPyObject<'a, 'py> for Input<'a, 'py> {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        match object.cast::<PyBytes>() {
            Ok(bytes) => Ok(Self::Bytes(bytes)),
            Err(_) => contiguous(&object).map(Self::Buffer),
        }
    }
}

impl Input<'_, '_> {
    /// The bytes. Other threads may change them while the GIL is released.
    pub fn as_slice<'a>(&'a self, _py: Python<'a>) -> &'a [u8] {
        match self {
            Self::Bytes(bytes) => bytes.as_bytes(),
            Self::Buffer(buffer) if buffer.len_bytes() == 0 => &[],
            // SAFETY: the buffer is contiguous, and exported until it is dropped. No call releases the GIL while it uses the bytes.
            Self::Buffer(buffer) => unsafe {
                slice::from_raw_parts(buffer.buf_ptr().cast(), buffer.len_bytes())
            },
        }
    }
}

/// A writable bytes-like argument.
pub struct Output(PyUntypedBuffer);

impl<'py> FromPyObject<'_, 'py> for Output {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let buffer = contiguous(&object)?;
        match buffer.readonly() {
            true => Err(PyBufferError::new_err("the buffer is read-only")),
            false => Ok(Self(buffer)),
        }
    }
}

impl Output {
    pub fn as_slice<'a>(&'a mut self, _py: Python<'a>) -> &'a mut [u8] {
        if self.0.len_bytes() == 0 {
            return &mut [];
        }
        // SAFETY: as in Input; it is writable.
        unsafe { slice::from_raw_parts_mut(self.0.buf_ptr().cast(), self.0.len_bytes()) }
    }
}

fn contiguous(object: &Bound<'_, PyAny>) -> PyResult<PyUntypedBuffer> {
    let buffer = PyUntypedBuffer::get(object)?;
    match buffer.is_c_contiguous() {
        true => Ok(buffer),
        false => Err(PyBufferError::new_err("the buffer is not contiguous")),
    }
}

/// A copy of bytes that another process may change meanwhile.
pub fn copy<'py>(py: Python<'py>, bytes: &Bytes<'_>) -> PyResult<Bound<'py, PyBytes>> {
    PyBytes::new_with(py, bytes.len(), |into| {
        bytes.copy_to(0, into);
        Ok(())
    })
}

/// An endpoint that lends a part of its memory.
pub trait Lend: Send {
    /// Sends the first `length` of the `lent` bytes, or releases the record.
    fn take(&mut self, lent: usize, length: usize) -> PyResult<()>;
}

impl Lend for ring::Producer {
    fn take(&mut self, lent: usize, length: usize) -> PyResult<()> {
        // The room at the same position, with its content: nothing was sent since.
        let room = self.try_reserve(lent);
        room.map_err(|error| Python::attach(|py| exception(py, &error)))?
            .commit_len(length);
        Ok(())
    }
}

macro_rules! lend_records {
    ($consumer:ty) => {
        impl Lend for $consumer {
            fn take(&mut self, _lent: usize, _length: usize) -> PyResult<()> {
                // It is the next one until it is dropped. If the endpoint cannot release it, its next call fails.
                drop(self.try_recv());
                Ok(())
            }
        }
    };
}

lend_records!(ring::Consumer);
lend_records!(feed::Consumer);

trait Lender: Send + Sync {
    /// Ends the loan: with a length by `Lend::take`. Has no effect if it has ended.
    fn end(&self, loan: &Loan, length: Option<usize>) -> PyResult<()>;
}

impl<T: Lend> Lender for Exclusive<T> {
    fn end(&self, loan: &Loan, length: Option<usize>) -> PyResult<()> {
        self.end_loan(loan, |endpoint| match length {
            Some(length) => endpoint.take(loan.len, length),
            None => Ok(()),
        })
    }
}

/// Memory of an endpoint, which a Python object gives access to.
pub struct Memory {
    loan: Arc<Loan>,
    lender: Arc<dyn Lender>,
}

impl Memory {
    /// Borrows what the call returns.
    pub fn lend<T: Lend + 'static>(
        endpoint: &Arc<Exclusive<T>>,
        limit: Limit,
        call: impl FnOnce(&mut T) -> PyResult<(*mut u8, usize)>,
    ) -> PyResult<Self> {
        let loan = endpoint.lend(limit, call)?;
        let lender = endpoint.clone();
        Ok(Self { loan, lender })
    }

    fn end(&self, length: Option<usize>) -> PyResult<()> {
        self.lender.end(&self.loan, length)
    }

    /// Fills in the description of the memory of an object.
    ///
    /// # Safety
    /// As the buffer protocol requires.
    unsafe fn export(
        &self,
        object: &Bound<'_, PyAny>,
        readonly: bool,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        if self.loan.has_ended() {
            return Err(PyBufferError::new_err("the record is released"));
        }
        let len = ffi::Py_ssize_t::try_from(self.loan.len)?;
        let start = self.loan.start.cast();
        // SAFETY: the caller passes a view to fill in; the memory has that length, and stays mapped while it is exported.
        let filled = unsafe {
            ffi::PyBuffer_FillInfo(view, object.as_ptr(), start, len, readonly.into(), flags)
        };
        if filled != 0 {
            return Err(PyErr::fetch(object.py()));
        }
        self.loan.add_export();
        Ok(())
    }
}

/// A received record in the memory of its endpoint, without a copy. It is a read-only buffer: pass it to memoryview(), bytes() or
/// numpy.frombuffer().
///
/// The end of the with block releases the record, also when an exception ends it: keep() leaves the record in the ring. A memoryview or
/// array of it must not exist then: release or delete it before, otherwise the block ends with BufferError, and the record is released when
/// this object and the last of them are deleted. Until it is released, the consumer receives nothing else. A new memoryview of a released
/// record fails with BufferError.
///
/// The producer can change the bytes of a ring at any time. Copy an untrusted record once, by bytes(), and validate the copy.
#[pyclass(frozen, module = "sluice")]
pub struct Record(pub Memory);

#[pymethods]
impl Record {
    /// Releases the record, so that its room is free for the producer. Releasing it again has no effect.
    fn release(&self) -> PyResult<()> {
        self.0.end(Some(self.0.loan.len))
    }

    /// Leaves the record in the ring: it is the next one again. For a receiver that could not process it.
    fn keep(&self) -> PyResult<()> {
        self.0.end(None)
    }

    fn __len__(&self) -> usize {
        self.0.loan.len
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    /// After an exception, memoryviews in its traceback may still exist.
    #[pyo3(signature = (exception=None, *_rest))]
    fn __exit__(
        &self,
        py: Python<'_>,
        exception: Option<&Bound<'_, PyAny>>,
        _rest: &Bound<'_, PyTuple>,
    ) -> PyResult<()> {
        self.release()
            .or_else(|error| unless_in_use(py, error, exception))
    }

    /// # Safety
    /// As the buffer protocol requires.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        // SAFETY: as the caller guarantees.
        unsafe { slf.get().0.export(slf.as_any(), true, view, flags) }
    }

    /// # Safety
    /// As the buffer protocol requires.
    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        self.0.loan.remove_export();
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        // It fails only while another call uses the endpoint, which none does during a loan.
        self.release().ok();
    }
}

/// Room for a record in the memory of a ring, without a copy. It is a writable buffer with unspecified content: pass it to memoryview(),
/// struct.pack_into() or numpy.frombuffer().
///
/// The end of the with block sends the record, an exception cancels it. A memoryview or array of it must not exist then: release or delete
/// it before, otherwise the block ends with BufferError, and nothing is sent.
#[pyclass(frozen, module = "sluice")]
pub struct Reservation(pub Memory);

#[pymethods]
impl Reservation {
    /// Sends the first `length` bytes as the record, by default all. Has no effect after a commit or a cancel, and fails after a close.
    #[pyo3(signature = (length=None))]
    fn commit(&self, length: Option<usize>) -> PyResult<()> {
        let reserved = self.0.loan.len;
        if self.0.loan.was_cut_off() {
            return Err(closed());
        }
        match length.unwrap_or(reserved) {
            length if length <= reserved => self.0.end(Some(length)),
            length => Err(PyBufferError::new_err(format!(
                "{length} bytes of a reservation of {reserved}"
            ))),
        }
    }

    /// Sends nothing. Has no effect after a commit or a cancel.
    fn cancel(&self) -> PyResult<()> {
        self.0.end(None)
    }

    fn __len__(&self) -> usize {
        self.0.loan.len
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    /// After an exception, memoryviews in its traceback may still exist.
    #[pyo3(signature = (exception=None, *_rest))]
    fn __exit__(
        &self,
        py: Python<'_>,
        exception: Option<&Bound<'_, PyAny>>,
        _rest: &Bound<'_, PyTuple>,
    ) -> PyResult<()> {
        match exception {
            None => self.commit(None),
            Some(_) => self
                .cancel()
                .or_else(|error| unless_in_use(py, error, exception)),
        }
    }

    /// # Safety
    /// As the buffer protocol requires.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        // SAFETY: as the caller guarantees.
        unsafe { slf.get().0.export(slf.as_any(), false, view, flags) }
    }

    /// # Safety
    /// As the buffer protocol requires.
    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        self.0.loan.remove_export();
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // As for a record.
        self.cancel().ok();
    }
}
