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

use crate::endpoint::{Exclusive, Loan};
use crate::error::OrRaise as _;

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

/// An endpoint that a record is lent from.
pub trait Lender: Send + Sync {
    /// Ends the loan: releases the record, or leaves it as the next one.
    fn settle(&self, loan: &Arc<Loan>, keep: bool) -> PyResult<()>;
    fn has_lent(&self, loan: &Arc<Loan>) -> PyResult<bool>;
}

macro_rules! lender {
    ($consumer:ty) => {
        impl Lender for Exclusive<$consumer> {
            /// The record is the next one until it is dropped. If the endpoint cannot release it, its next call fails.
            fn settle(&self, loan: &Arc<Loan>, keep: bool) -> PyResult<()> {
                Exclusive::settle(self, loan, |consumer| {
                    if !keep {
                        drop(consumer.try_recv());
                    }
                    Ok(())
                })
                .map(drop)
            }

            fn has_lent(&self, loan: &Arc<Loan>) -> PyResult<bool> {
                Exclusive::has_lent(self, loan)
            }
        }
    };
}

lender!(ring::Consumer);
lender!(feed::Consumer);

/// A received record in the memory of its endpoint, without a copy. It is a read-only buffer: pass it to memoryview(), bytes() or
/// numpy.frombuffer().
///
/// The end of the with block releases the record. A memoryview or array of it must not exist then: release or delete it before, otherwise
/// the block ends with BufferError, and the record is released when the last of them is deleted. Until it is released, the consumer
/// receives nothing else. A new memoryview of a released record fails with BufferError.
///
/// The producer can change the bytes of a ring at any time. Copy an untrusted record once, by bytes(), and validate the copy.
#[pyclass(frozen, module = "sluice")]
pub struct Record {
    loan: Arc<Loan>,
    lender: Arc<dyn Lender>,
}

impl Record {
    pub fn new(loan: Arc<Loan>, lender: Arc<dyn Lender>) -> Self {
        Self { loan, lender }
    }
}

#[pymethods]
impl Record {
    /// Releases the record, so that its room is free for the producer. Releasing it again has no effect.
    fn release(&self) -> PyResult<()> {
        self.lender.settle(&self.loan, false)
    }

    /// Leaves the record in the ring: it is the next one again. For a receiver that could not process it.
    fn keep(&self) -> PyResult<()> {
        self.lender.settle(&self.loan, true)
    }

    fn __len__(&self) -> usize {
        self.loan.len
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    /// After an exception, memoryviews in its traceback may still exist.
    #[pyo3(signature = (exception=None, *_rest))]
    fn __exit__(
        &self,
        exception: Option<&Bound<'_, PyAny>>,
        _rest: &Bound<'_, PyTuple>,
    ) -> PyResult<()> {
        match self.release() {
            Err(_) if exception.is_some() => Ok(()),
            released => released,
        }
    }

    /// # Safety
    /// As the buffer protocol requires.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let record = slf.get();
        let is_lent = record.lender.has_lent(&record.loan)?;
        // SAFETY: as the caller guarantees; the memory stays mapped while it is exported.
        unsafe { export(slf.as_any(), &record.loan, is_lent, true, view, flags) }
    }

    /// # Safety
    /// As the buffer protocol requires.
    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        self.loan.remove_export();
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
pub struct Reservation {
    loan: Arc<Loan>,
    lender: Arc<Exclusive<ring::Producer>>,
}

impl Reservation {
    pub fn new(loan: Arc<Loan>, lender: Arc<Exclusive<ring::Producer>>) -> Self {
        Self { loan, lender }
    }
}

#[pymethods]
impl Reservation {
    /// Sends the first `length` bytes as the record, by default all. Has no effect after a commit or a cancel.
    #[pyo3(signature = (length=None))]
    fn commit(&self, py: Python<'_>, length: Option<usize>) -> PyResult<()> {
        let reserved = self.loan.len;
        let length = length.unwrap_or(reserved);
        if length > reserved {
            return Err(PyBufferError::new_err(format!(
                "{length} bytes of a reservation of {reserved}"
            )));
        }
        self.lender
            .settle(&self.loan, |producer| {
                // The room at the same position, with its content: nothing was sent since.
                producer
                    .try_reserve(reserved)
                    .or_raise(py)?
                    .commit_len(length);
                Ok(())
            })
            .map(drop)
    }

    /// Sends nothing. Has no effect after a commit or a cancel.
    fn cancel(&self) -> PyResult<()> {
        self.lender.settle(&self.loan, |_| Ok(())).map(drop)
    }

    fn __len__(&self) -> usize {
        self.loan.len
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
            None => self.commit(py, None),
            Some(_) => {
                self.cancel().ok();
                Ok(())
            }
        }
    }

    /// # Safety
    /// As the buffer protocol requires.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let room = slf.get();
        let is_lent = room.lender.has_lent(&room.loan)?;
        // SAFETY: as the caller guarantees; the memory stays mapped while it is exported.
        unsafe { export(slf.as_any(), &room.loan, is_lent, false, view, flags) }
    }

    /// # Safety
    /// As the buffer protocol requires.
    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        self.loan.remove_export();
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // As for a record.
        self.cancel().ok();
    }
}

/// Fills in the description of the memory of an object.
///
/// # Safety
/// As for `__getbuffer__`.
unsafe fn export(
    object: &Bound<'_, PyAny>,
    loan: &Loan,
    is_lent: bool,
    readonly: bool,
    view: *mut ffi::Py_buffer,
    flags: c_int,
) -> PyResult<()> {
    if !is_lent {
        return Err(PyBufferError::new_err("the record is released"));
    }
    let len = ffi::Py_ssize_t::try_from(loan.len)?;
    let start = loan.start.cast();
    // SAFETY: the caller passes a view to fill in, and the memory has that length.
    let filled = unsafe {
        ffi::PyBuffer_FillInfo(view, object.as_ptr(), start, len, readonly.into(), flags)
    };
    if filled != 0 {
        return Err(PyErr::fetch(object.py()));
    }
    loan.add_export();
    Ok(())
}
