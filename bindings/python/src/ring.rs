// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rings.

use std::sync::Arc;
use std::time::Duration;

use pyo3::exceptions::PyEOFError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyIterator, PyList};
use sluice::ring::{self, RecvError, SendError};

use crate::buffer::{Input, Memory, Output, Record, Reservation, copy};
use crate::endpoint::{Endpoint, Exclusive, extend};
use crate::error::{OrRaise as _, exception};
use crate::options::{Keywords, Name, apply, common};
use crate::wait::{Limit, Seconds, wait_for};

/// Rings of the module: records from one producer to one consumer, by name, through shared memory.
///
/// Options: scope, the directory of a cgroup; create; any_owner, the ring of another user, too; exclusive, of a create: fails if there is
/// one; persistent; permissions, 0o600 by default; spin_limit, the seconds of a wait before it sleeps; max_capacity, the largest ring to map;
/// mlock; of the open that creates the ring: capacity in bytes, 4 MiB by default, and numa_node.
///
/// A ring without endpoints is freed with its records, unless it is persistent.
#[pyclass(frozen, module = "sluice")]
pub struct Ring;

#[pymethods]
impl Ring {
    /// Opens the ring for sending. Does not wait for the consumer.
    #[staticmethod]
    #[pyo3(signature = (name, **options))]
    fn producer(
        py: Python<'_>,
        name: Name,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<Producer>> {
        let options = named(name, options)?;
        Producer::new(py, options.producer().or_raise(py)?)
    }

    /// Opens the ring for receiving. Does not wait for the producer.
    #[staticmethod]
    #[pyo3(signature = (name, **options))]
    fn consumer(
        py: Python<'_>,
        name: Name,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<Consumer>> {
        let options = named(name, options)?;
        Consumer::new(py, options.consumer().or_raise(py)?)
    }

    /// Creates a ring that exists until it is removed. Fails with AlreadyExists if it exists.
    #[staticmethod]
    #[pyo3(signature = (name, **options))]
    fn create(py: Python<'_>, name: Name, options: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
        named(name, options)?.create_persistent().or_raise(py)
    }
}

fn named(
    name: Name,
    keywords: Option<&Bound<'_, PyDict>>,
) -> PyResult<sluice::Options<sluice::Ring>> {
    let keywords = Keywords::new(keywords)?;
    let mut options = common(sluice::Ring::named(name.0), &keywords)?;
    apply!(options, keywords; spin_limit: Seconds, max_capacity: u64, mlock: bool, numa_node: u32);
    keywords.finish()?;
    Ok(options)
}

/// The sending side of a ring. Closing it ends the stream: the consumer receives all sent records before.
///
/// Records of a ring of the module that is not persistent are lost if its consumer has not come before the close: call flush() before.
#[pyclass(extends = Endpoint, frozen, module = "sluice")]
pub struct Producer {
    side: Arc<Exclusive<ring::Producer>>,
}

impl Producer {
    pub fn new(py: Python<'_>, producer: ring::Producer) -> PyResult<Py<Self>> {
        Py::new(py, extend(Exclusive::new(producer), |side| Self { side }))
    }
}

#[pymethods]
impl Producer {
    /// Sends a record, a bytes-like object. Waits while the ring is full.
    #[pyo3(signature = (record, timeout=None))]
    fn send(
        &self,
        py: Python<'_>,
        record: Input<'_, '_>,
        timeout: Option<Seconds>,
    ) -> PyResult<()> {
        let limit = timeout.into();
        self.side.wait(limit, |producer| {
            let record = record.as_slice(py);
            let attempt = |producer: &mut ring::Producer| producer.try_send(record).map(Ok);
            wait_for(py, limit, producer, attempt, room_for(record.len()))
        })
    }

    /// Sends records, which become visible to the consumer together as far as they fit. Waits while the ring is full. An exception of the
    /// iterable ends the call after the records before it are sent.
    fn send_batch(&self, py: Python<'_>, records: &Bound<'_, PyAny>) -> PyResult<()> {
        let mut records = records.try_iter()?;
        let mut unsent = None;
        self.side.wait(Limit::NONE, |producer| {
            loop {
                unsent = put_all(py, producer.send_batch(), unsent.take(), &mut records)?;
                let Some(record) = &unsent else {
                    return Ok(());
                };
                let length = record.extract::<Input<'_, '_>>()?.as_slice(py).len();
                let attempt =
                    |producer: &mut ring::Producer| producer.try_reserve(length).map(|_| Ok(()));
                wait_for(py, Limit::NONE, producer, attempt, room_for(length))?;
            }
        })
    }

    /// Reserves room for a record of this length, to be filled in place: see Reservation. Waits while the ring is full.
    #[pyo3(signature = (length, timeout=None))]
    fn reserve(
        &self,
        py: Python<'_>,
        length: usize,
        timeout: Option<Seconds>,
    ) -> PyResult<Reservation> {
        let attempt = |producer: &mut ring::Producer| {
            let mut room = producer.try_reserve(length)?;
            Ok(Ok((room.as_mut_ptr(), room.len())))
        };
        let limit = timeout.into();
        let room = Memory::lend(&self.side, limit, |producer| {
            wait_for(py, limit, producer, attempt, room_for(length))
        })?;
        Ok(Reservation(room))
    }

    /// Waits until the consumer has released all sent records.
    #[pyo3(signature = (timeout=None))]
    fn flush(&self, py: Python<'_>, timeout: Option<Seconds>) -> PyResult<()> {
        let limit = timeout.into();
        self.side.wait(limit, |producer| {
            wait_for(
                py,
                limit,
                producer,
                |producer| match producer.pending()? {
                    0 => Ok(Ok(())),
                    _ => producer.flush_timeout(Duration::ZERO).map(Ok),
                },
                |producer, time| producer.flush_timeout(time),
            )
        })
    }

    /// Closes this side without ending the stream: the consumer receives all sent records, then PeerDied.
    fn abort(&self) -> PyResult<()> {
        self.side.take(ring::Producer::abort)
    }

    /// Prepares to wait, by the descriptor, for room for a record. Returns False if there is room, or the consumer has ended. Call
    /// finish_wait() after the wait, or instead of it.
    fn prepare_wait(&self, py: Python<'_>, length: usize) -> PyResult<bool> {
        self.side
            .announce(|producer| producer.prepare_wait(length).or_raise(py))
    }

    /// Ends a prepared wait: reads the wake-ups from the descriptor.
    fn finish_wait(&self) -> PyResult<()> {
        self.side.finish(ring::Producer::finish_wait)
    }

    /// Bytes, including headers, that the consumer has not released yet.
    #[getter]
    fn pending(&self, py: Python<'_>) -> PyResult<u64> {
        self.side.with(|producer| producer.pending().or_raise(py))
    }

    /// The capacity in bytes for unreleased records, including their headers.
    #[getter]
    fn capacity(&self) -> PyResult<u64> {
        self.side.with(|producer| Ok(producer.capacity()))
    }

    /// The length limit of a record, in bytes.
    #[getter]
    fn max_record_len(&self) -> PyResult<usize> {
        self.side.with(|producer| Ok(producer.max_record_len()))
    }

    /// Whether the consumer has come, also if it has ended since. Over a socket it always has.
    #[getter]
    fn has_consumer(&self, py: Python<'_>) -> PyResult<bool> {
        self.side
            .with(|producer| producer.has_consumer().or_raise(py))
    }

    /// Whether the consumer has closed the ring or died.
    #[getter]
    fn peer_closed(&self) -> PyResult<bool> {
        self.side.with(|producer| Ok(producer.is_closed()))
    }
}

/// Adds records to a batch, and sends it. Returns the first one that has no room.
fn put_all<'py>(
    py: Python<'py>,
    mut batch: ring::WriteBatch<'_>,
    first: Option<Bound<'py, PyAny>>,
    records: &mut Bound<'py, PyIterator>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    for record in first.map(Ok).into_iter().chain(records) {
        let record = record?;
        match batch.try_send(record.extract::<Input<'_, '_>>()?.as_slice(py)) {
            Ok(()) => {}
            Err(SendError::Full) => return Ok(Some(record)),
            Err(error) => return Err(exception(py, &error)),
        }
    }
    Ok(None)
}

/// Waits for room for a record.
fn room_for(length: usize) -> impl Fn(&mut ring::Producer, Duration) -> Result<(), SendError> {
    move |producer, time| producer.reserve_timeout(length, time).map(drop)
}

/// The receiving side of a ring. Iteration returns the records up to the end of the stream.
#[pyclass(extends = Endpoint, frozen, module = "sluice")]
pub struct Consumer {
    side: Arc<Exclusive<ring::Consumer>>,
}

impl Consumer {
    pub fn new(py: Python<'_>, consumer: ring::Consumer) -> PyResult<Py<Self>> {
        Py::new(py, extend(Exclusive::new(consumer), |side| Self { side }))
    }

    fn receive<'py>(&self, py: Python<'py>, limit: Limit) -> PyResult<Option<Bound<'py, PyBytes>>> {
        self.side.wait(limit, |consumer| {
            let take = |record: ring::Record<'_>| match copy(py, &record) {
                Ok(bytes) => Ok(bytes),
                Err(error) => {
                    record.keep();
                    Err(error)
                }
            };
            next(py, limit, consumer, take)
        })
    }
}

#[pymethods]
impl Consumer {
    /// Returns a copy of the next record, or None at the end of the stream: compare with None, a record may be empty. Waits for a record.
    #[pyo3(signature = (timeout=None))]
    fn recv<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<Seconds>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        self.receive(py, timeout.into())
    }

    /// Returns the next record in place, without a copy: see Record. Waits for a record. Raises EOFError at the end of the stream.
    #[pyo3(signature = (timeout=None))]
    fn recv_view(&self, py: Python<'_>, timeout: Option<Seconds>) -> PyResult<Record> {
        let take = |record: ring::Record<'_>| {
            let memory = (record.as_ptr().cast_mut(), record.len());
            record.keep();
            Ok(memory)
        };
        let limit = timeout.into();
        let record = Memory::lend(&self.side, limit, |consumer| {
            let memory = next(py, limit, consumer, take)?;
            memory.ok_or_else(|| PyEOFError::new_err("the end of the stream"))
        })?;
        Ok(Record(record))
    }

    /// Copies the next record into a writable buffer and returns its length, or None at the end of the stream. Waits for a record. A
    /// record longer than the buffer is not received and stays the next one.
    #[pyo3(signature = (buffer, timeout=None))]
    fn recv_into(
        &self,
        py: Python<'_>,
        mut buffer: Output,
        timeout: Option<Seconds>,
    ) -> PyResult<Option<usize>> {
        let limit = timeout.into();
        self.side.wait(limit, |consumer| {
            let attempt =
                |consumer: &mut ring::Consumer| consumer.try_recv_into(buffer.as_slice(py)).map(Ok);
            wait_for(py, limit, consumer, attempt, sleep)
        })
    }

    /// Returns copies of all available records, up to a number; an empty list at the end of the stream. Waits for the first one.
    #[pyo3(signature = (limit=1024, timeout=None))]
    fn recv_batch<'py>(
        &self,
        py: Python<'py>,
        limit: usize,
        timeout: Option<Seconds>,
    ) -> PyResult<Bound<'py, PyList>> {
        let records = PyList::empty(py);
        let wait = timeout.into();
        self.side.wait(wait, |consumer| {
            let attempt = |consumer: &mut ring::Consumer| match consumer.try_recv_batch()? {
                Some(batch) => take_all(py, batch, limit, &records),
                None => Ok(Ok(())),
            };
            wait_for(py, wait, consumer, attempt, sleep)
        })?;
        Ok(records)
    }

    /// Closes this side without ending the stream, so that the producer gets an error.
    fn abort(&self) -> PyResult<()> {
        self.side.take(ring::Consumer::abort)
    }

    /// Prepares to wait, by the descriptor, for a record. Returns False if there is one, or the stream has ended. Call finish_wait() after
    /// the wait, or instead of it.
    fn prepare_wait(&self, py: Python<'_>) -> PyResult<bool> {
        self.side
            .announce(|consumer| consumer.prepare_wait().or_raise(py))
    }

    /// Ends a prepared wait: reads the wake-ups from the descriptor.
    fn finish_wait(&self) -> PyResult<()> {
        self.side.finish(ring::Consumer::finish_wait)
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        self.receive(py, Limit::NONE)
    }

    /// Bytes, including headers, that the producer has reported as sent and that were not received yet. Only a hint.
    #[getter]
    fn pending(&self) -> PyResult<u64> {
        self.side.with(|consumer| Ok(consumer.pending()))
    }

    /// The capacity in bytes for unreleased records, including their headers.
    #[getter]
    fn capacity(&self) -> PyResult<u64> {
        self.side.with(|consumer| Ok(consumer.capacity()))
    }

    /// The length limit of a record, in bytes.
    #[getter]
    fn max_record_len(&self) -> PyResult<usize> {
        self.side.with(|consumer| Ok(consumer.max_record_len()))
    }

    /// Whether the producer has come, also if it has ended since. Over a socket it always has.
    #[getter]
    fn has_producer(&self, py: Python<'_>) -> PyResult<bool> {
        self.side
            .with(|consumer| consumer.has_producer().or_raise(py))
    }

    /// Whether the producer has closed the ring or died. There may still be records.
    #[getter]
    fn peer_closed(&self) -> PyResult<bool> {
        self.side.with(|consumer| Ok(consumer.is_closed()))
    }
}

/// Waits for the next record, and passes it on.
fn next<T>(
    py: Python<'_>,
    limit: Limit,
    consumer: &mut ring::Consumer,
    mut take: impl FnMut(ring::Record<'_>) -> PyResult<T>,
) -> PyResult<Option<T>> {
    let attempt = |consumer: &mut ring::Consumer| {
        let record = consumer.try_recv()?;
        Ok(record.map(&mut take).transpose())
    };
    wait_for(py, limit, consumer, attempt, sleep)
}

/// Waits for a record, which stays the next one.
fn sleep(consumer: &mut ring::Consumer, time: Duration) -> Result<(), RecvError> {
    if let Some(record) = consumer.recv_timeout(time)? {
        record.keep();
    }
    Ok(())
}

/// Appends copies of up to `limit` records to the list. Without memory for one, all stay in the ring.
fn take_all(
    py: Python<'_>,
    mut batch: ring::ReadBatch<'_>,
    limit: usize,
    records: &Bound<'_, PyList>,
) -> Result<PyResult<()>, RecvError> {
    for _ in 0..limit {
        let Some(record) = batch.recv()? else {
            break;
        };
        let appended = copy(py, &record).and_then(|copy| records.append(copy));
        if appended.is_err() {
            batch.rewind();
            return Ok(appended);
        }
    }
    Ok(Ok(()))
}
