// SPDX-License-Identifier: MIT OR Apache-2.0
//! Feeds.

use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use sluice::feed::{self, RecvError};

use crate::buffer::{Memory, Record, copy};
use crate::endpoint::{Endpoint, Exclusive, extend};
use crate::error::OrRaise as _;
use crate::options::Name;
use crate::python::{fields, info};
use crate::wait::{Seconds, wait_for};

/// Feeds: packets from a kernel module to one process.
#[pyclass(frozen, module = "sluice")]
pub struct Feed;

#[pymethods]
impl Feed {
    /// Claims the feed to receive its packets through mapped memory. The first packet is the next one that is published.
    #[staticmethod]
    #[pyo3(signature = (name, *, spin_limit=None))]
    fn consumer(
        py: Python<'_>,
        name: Name,
        spin_limit: Option<Seconds>,
    ) -> PyResult<Py<FeedConsumer>> {
        let feed = sluice::Feed::named(name.0).open().or_raise(py)?;
        let mut consumer = feed.map().or_raise(py)?;
        if let Some(limit) = spin_limit {
            consumer.set_spin_limit(limit.into());
        }
        let class = |consumer| FeedConsumer { consumer };
        Py::new(py, extend(Exclusive::new(consumer), class))
    }

    /// The state of a feed, which is not claimed for it: a FeedInfo.
    #[staticmethod]
    fn info(py: Python<'_>, name: Name) -> PyResult<Bound<'_, PyAny>> {
        let feed = sluice::Feed::named(name.0).info().or_raise(py)?;
        let receiver = feed.receiver.map(|receiver| match receiver {
            feed::Receiver::Reads => "reads",
            feed::Receiver::Maps => "maps",
            _ => "unknown",
        });
        let fields =
            fields!(py, feed; capacity, sequence, published, lost, violations; receiver: receiver);
        info("FeedInfo", &fields)
    }
}

/// Receives the packets of a feed. Iteration ends when the publisher destroys the feed.
#[pyclass(extends = Endpoint, frozen, module = "sluice")]
pub struct FeedConsumer {
    consumer: Arc<Exclusive<feed::Consumer>>,
}

#[pymethods]
impl FeedConsumer {
    /// Returns a copy of the next Packet. Waits for one. Fails with Closed at the end of the feed.
    #[pyo3(signature = (timeout=None))]
    fn recv(&self, py: Python<'_>, timeout: Option<Seconds>) -> PyResult<Packet> {
        let attempt = |consumer: &mut feed::Consumer| {
            let packet = consumer.try_recv()?;
            Ok(Packet::new(py, &packet))
        };
        let limit = timeout.into();
        self.consumer.wait(limit, |consumer| {
            wait_for(py, limit, consumer, attempt, sleep)
        })
    }

    /// Returns the next packet in place, without a copy: see Record. Its header is not part of it: use recv() for that.
    #[pyo3(signature = (timeout=None))]
    fn recv_view(&self, py: Python<'_>, timeout: Option<Seconds>) -> PyResult<Record> {
        let attempt = |consumer: &mut feed::Consumer| {
            let packet = consumer.try_recv()?;
            let memory = (packet.bytes().as_ptr().cast_mut(), packet.bytes().len());
            // It stays the next one until the loan ends.
            std::mem::forget(packet);
            Ok(Ok(memory))
        };
        let limit = timeout.into();
        let packet = Memory::lend(&self.consumer, limit, |consumer| {
            wait_for(py, limit, consumer, attempt, sleep)
        })?;
        Ok(Record(packet))
    }

    /// Prepares to wait, by the descriptor, for a packet. Returns False if there is one, or the feed has ended. Call finish_wait() after the
    /// wait, or instead of it.
    fn prepare_wait(&self, py: Python<'_>) -> PyResult<bool> {
        self.consumer
            .announce(|consumer| consumer.prepare_wait().or_raise(py))
    }

    /// Ends a prepared wait.
    fn finish_wait(&self) -> PyResult<()> {
        self.consumer.finish(feed::Consumer::finish_wait)
    }

    /// The capacity in bytes for unreleased packets, including their headers.
    #[getter]
    fn capacity(&self) -> PyResult<u64> {
        self.consumer.with(|consumer| Ok(consumer.capacity()))
    }
}

/// Waits for a packet, which stays the next one.
fn sleep(consumer: &mut feed::Consumer, time: Duration) -> Result<(), RecvError> {
    consumer.recv_timeout(time).map(std::mem::forget)
}

/// A packet of a feed.
#[pyclass(frozen, get_all, module = "sluice")]
pub struct Packet {
    /// The bytes of the publisher.
    data: Py<PyBytes>,
    /// The number of the packet: the previous packet's sequence + 1 + `lost`.
    sequence: u64,
    /// Packets lost directly before this one.
    lost: u64,
    /// The time just before the packet became visible, as of time.monotonic_ns().
    time_ns: u64,
}

impl Packet {
    fn new(py: Python<'_>, packet: &feed::Packet<'_>) -> PyResult<Self> {
        Ok(Self {
            data: copy(py, packet.bytes())?.unbind(),
            sequence: packet.sequence,
            lost: packet.lost,
            time_ns: packet.time.as_nanos().try_into()?,
        })
    }
}

#[pymethods]
impl Packet {
    fn __bytes__(&self, py: Python<'_>) -> Py<PyBytes> {
        self.data.clone_ref(py)
    }
}
