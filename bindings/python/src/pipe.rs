// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pipes.

use std::io::{self, Read as _, Write as _};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use sluice::pipe;

use crate::buffer::{Input, Output};
use crate::endpoint::{Endpoint, Shared, extend};
use crate::error::OrRaise as _;
use crate::options::{Keywords, Name, common};
use crate::python::{fields, info};
use crate::wait::{Limit, Pending as _, Seconds, poll, readable, wait_for};

/// The pause between two attempts to open a pipe that no reader has open.
const OPEN_PAUSE: Duration = Duration::from_millis(5);

/// Pipes: bytes from writers to readers, by name, as through a FIFO. Without a name: the pipe of the caller's cgroup, /dev/sluice/pipe.
///
/// Options: scope, create, any_owner, exclusive, persistent, permissions; of the open that creates the pipe: capacity in bytes. The pipe of
/// the cgroup has none.
#[pyclass(frozen, module = "sluice")]
pub struct Pipe;

#[pymethods]
impl Pipe {
    /// Opens the pipe for reading. Does not wait for a writer: the first read does.
    #[staticmethod]
    #[pyo3(signature = (name=None, **options))]
    fn reader(
        py: Python<'_>,
        name: Option<Name>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<PipeReader>> {
        let reader = match named(name, options)? {
            Some(options) => options.reader(),
            None => sluice::Pipe::unnamed().nonblocking(true).reader(),
        };
        let reader = Shared::new(reader.or_raise(py)?);
        Py::new(py, extend(reader, |reader| PipeReader { reader }))
    }

    /// Opens the pipe for writing. Waits for a reader, unless the timeout is 0.
    #[staticmethod]
    #[pyo3(signature = (name=None, *, timeout=None, **options))]
    fn writer(
        py: Python<'_>,
        name: Option<Name>,
        timeout: Option<Seconds>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<PipeWriter>> {
        let limit = Limit::from(timeout);
        let attempt = |options: &mut Option<pipe::Options>| {
            let opened = match options {
                Some(options) => options.writer(),
                None => sluice::Pipe::unnamed().nonblocking(true).writer(),
            };
            match opened {
                Err(sluice::Error::NoReader { .. }) if !limit.is_now() => Err(io::Error::pending()),
                opened => Ok(opened.or_raise(py)),
            }
        };
        let pause = |_: &mut Option<pipe::Options>, time: Duration| {
            thread::sleep(time.min(OPEN_PAUSE));
            Ok(())
        };
        let writer = wait_for(py, limit, &mut named(name, options)?, attempt, pause)?;
        let class = |writer| PipeWriter { writer };
        Py::new(py, extend(Shared::new(writer), class))
    }

    /// Creates a pipe that exists until it is removed. Fails with AlreadyExists if it exists.
    #[staticmethod]
    #[pyo3(signature = (name, **options))]
    fn create(py: Python<'_>, name: Name, options: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
        let keywords = Keywords::new(options)?;
        let options = common(sluice::Pipe::named(name.0), &keywords)?;
        keywords.finish()?;
        options.create_persistent().or_raise(py)
    }
}

/// None: the pipe of the cgroup. The endpoints are nonblocking, so that a signal ends each wait.
fn named(
    name: Option<Name>,
    keywords: Option<&Bound<'_, PyDict>>,
) -> PyResult<Option<pipe::Options>> {
    let keywords = Keywords::new(keywords)?;
    let options = match name {
        Some(name) => Some(common(sluice::Pipe::named(name.0), &keywords)?.nonblocking(true)),
        None => None,
    };
    keywords.finish()?;
    Ok(options)
}

/// The reading end of a pipe. Several threads may use it at the same time. Iteration returns what there is, up to the end of the stream.
///
/// The descriptor is nonblocking.
#[pyclass(extends = Endpoint, frozen, module = "sluice")]
pub struct PipeReader {
    reader: Arc<Shared<pipe::Reader>>,
}

#[pymethods]
impl PipeReader {
    /// Returns up to `size` bytes, or none at the end of the stream, when no writer has the pipe open. Waits for the first byte.
    #[pyo3(signature = (size=65536, timeout=None))]
    fn read<'py>(
        &self,
        py: Python<'py>,
        size: usize,
        timeout: Option<Seconds>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let mut len = 0;
        let bytes = PyBytes::new_with(py, size, |bytes| {
            len = self.read_into(py, bytes, timeout.into())?;
            Ok(())
        })?;
        Ok(match len == size {
            true => bytes,
            false => PyBytes::new(py, &bytes.as_bytes()[..len]),
        })
    }

    /// As read(), into a writable buffer. Returns the number of bytes.
    #[pyo3(signature = (buffer, timeout=None))]
    fn readinto(
        &self,
        py: Python<'_>,
        mut buffer: Output,
        timeout: Option<Seconds>,
    ) -> PyResult<usize> {
        self.read_into(py, buffer.as_slice(py), timeout.into())
    }

    /// The state of the pipe: a PipeInfo.
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        pipe_info(py, &self.reader.get()?.info().or_raise(py)?)
    }

    /// Sets the capacity of the pipe in bytes, rounded up to a power of two of pages, and returns it.
    fn set_capacity(&self, py: Python<'_>, capacity: u64) -> PyResult<u64> {
        self.reader.get()?.set_capacity(capacity).or_raise(py)
    }
}

impl PipeReader {
    fn read_into(&self, py: Python<'_>, buffer: &mut [u8], limit: Limit) -> PyResult<usize> {
        let mut reader = self.reader.get()?;
        let attempt = |reader: &mut Arc<pipe::Reader>| {
            let len = (&**reader).read(buffer)?;
            // Without a hang-up, no writer has come yet, or one has come meanwhile.
            match len == 0 && !buffer.is_empty() && poll(reader, 0, Duration::ZERO) == 0 {
                true => Err(io::Error::pending()),
                false => Ok(Ok(len)),
            }
        };
        wait_for(py, limit, &mut reader, attempt, readable)
    }
}

/// The writing end of a pipe. Several threads may use it at the same time.
///
/// The descriptor is nonblocking.
#[pyclass(extends = Endpoint, frozen, module = "sluice")]
pub struct PipeWriter {
    writer: Arc<Shared<pipe::Writer>>,
}

#[pymethods]
impl PipeWriter {
    /// Writes bytes, as many as there is room for, and returns their number. Waits for room. Fails with Closed when no reader has the pipe
    /// open.
    #[pyo3(signature = (bytes, timeout=None))]
    fn write(
        &self,
        py: Python<'_>,
        bytes: Input<'_, '_>,
        timeout: Option<Seconds>,
    ) -> PyResult<usize> {
        self.write_from(py, bytes.as_slice(py), timeout.into())
    }

    /// Writes all bytes.
    fn write_all(&self, py: Python<'_>, bytes: Input<'_, '_>) -> PyResult<()> {
        let mut rest = bytes.as_slice(py);
        while !rest.is_empty() {
            let written = self.write_from(py, rest, Limit::NONE)?;
            rest = rest.get(written..).unwrap_or_default();
        }
        Ok(())
    }

    /// The state of the pipe: a PipeInfo.
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        pipe_info(py, &self.writer.get()?.info().or_raise(py)?)
    }

    /// Sets the capacity of the pipe in bytes, rounded up to a power of two of pages, and returns it.
    fn set_capacity(&self, py: Python<'_>, capacity: u64) -> PyResult<u64> {
        self.writer.get()?.set_capacity(capacity).or_raise(py)
    }
}

impl PipeWriter {
    fn write_from(&self, py: Python<'_>, bytes: &[u8], limit: Limit) -> PyResult<usize> {
        let attempt = |writer: &mut Arc<pipe::Writer>| (&**writer).write(bytes).map(Ok);
        let sleep = |writer: &mut Arc<pipe::Writer>, time| {
            poll(writer, libc::POLLOUT, time);
            Ok(())
        };
        wait_for(py, limit, &mut self.writer.get()?, attempt, sleep)
    }
}

fn pipe_info<'py>(py: Python<'py>, pipe: &pipe::PipeInfo) -> PyResult<Bound<'py, PyAny>> {
    let fields = fields!(py, pipe;
        readers, writers, capacity, bytes, pages_allocated, pages_spliced_in, pages_spliced_out;
        spin_limit: pipe.spin_limit.as_secs_f64());
    info("PipeInfo", &fields)
}
