// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buses.

use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use sluice::Timeout;
use sluice::bus::{self, BusInfo, Header, Mode, Policy, RecvError, SendError, SubscriberInfo};

use crate::buffer::Input;
use crate::endpoint::{Endpoint, Exclusive, Shared, extend};
use crate::error::OrRaise as _;
use crate::options::{Keywords, Name, apply, common, named_value};
use crate::python::{fields, info};
use crate::requests::{Client, Server};
use crate::wait::{Limit, Pending as _, Seconds, Waiting, poll, wait_for};

/// Buses: messages from many senders to many subscribers, and requests with their replies.
///
/// Options: scope, create, any_owner, exclusive, persistent, permissions; of the open that creates the bus: capacity in bytes, delivery
/// ("broadcast", the default, "multicast" or "unicast"), policies (a list of "drop", "block" and "evict"), mappable; of a subscriber:
/// policy, limit, monitor.
#[pyclass(frozen, module = "sluice")]
pub struct Bus;

#[pymethods]
impl Bus {
    /// Opens the bus to send.
    #[staticmethod]
    #[pyo3(signature = (name, **options))]
    fn sender(
        py: Python<'_>,
        name: Name,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<Sender>> {
        Sender::new(py, named(name, options)?.sender().or_raise(py)?)
    }

    /// Opens the bus to receive the messages that are sent from then on.
    #[staticmethod]
    #[pyo3(signature = (name, **options))]
    fn subscriber(
        py: Python<'_>,
        name: Name,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<Subscriber>> {
        Subscriber::new(py, named(name, options)?.subscriber().or_raise(py)?)
    }

    /// Opens the bus to send and to receive, with one id for both. On a broadcast bus the subscriber also receives what it sends itself.
    #[staticmethod]
    #[pyo3(signature = (name, **options))]
    fn endpoint(
        py: Python<'_>,
        name: Name,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<(Py<Sender>, Py<Subscriber>)> {
        let (sender, subscriber) = named(name, options)?.endpoint().or_raise(py)?;
        Ok((Sender::new(py, sender)?, Subscriber::new(py, subscriber)?))
    }

    /// Opens a multicast bus to send requests to its servers and receive their replies.
    #[staticmethod]
    #[pyo3(signature = (name, **options))]
    fn client(
        py: Python<'_>,
        name: Name,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<Client>> {
        Client::new(py, named(name, options)?.client().or_raise(py)?)
    }

    /// Opens a multicast bus to receive requests and send replies.
    #[staticmethod]
    #[pyo3(signature = (name, **options))]
    fn server(
        py: Python<'_>,
        name: Name,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<Server>> {
        Server::new(py, named(name, options)?.server().or_raise(py)?)
    }

    /// Creates a bus that exists until it is removed. Fails with AlreadyExists if it exists.
    #[staticmethod]
    #[pyo3(signature = (name, **options))]
    fn create(py: Python<'_>, name: Name, options: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
        named(name, options)?.create_persistent().or_raise(py)
    }
}

fn named(name: Name, keywords: Option<&Bound<'_, PyDict>>) -> PyResult<bus::Options> {
    let keywords = Keywords::new(keywords)?;
    let mut options = common(sluice::Bus::named(name.0), &keywords)?;
    apply!(options, keywords; mappable: bool, limit: u64, monitor: bool);
    if let Some(delivery) = keywords.take::<String>("delivery")? {
        let modes = [Mode::Broadcast, Mode::Multicast, Mode::Unicast];
        options = options.delivery(named_value(modes, &delivery, "delivery")?);
    }
    if let Some(policies) = keywords.take::<Vec<String>>("policies")? {
        let policies: PyResult<bus::Policies> = policies.iter().map(|name| policy(name)).collect();
        options = options.policies(policies?);
    }
    if let Some(name) = keywords.take::<String>("policy")? {
        options = options.policy(policy(&name)?);
    }
    keywords.finish()?;
    Ok(options)
}

fn policy(name: &str) -> PyResult<Policy> {
    let policies = [Policy::Drop, Policy::Block, Policy::Evict];
    named_value(policies, name, "policy")
}

/// Sends messages on a bus. Several threads may use it at the same time.
#[pyclass(extends = Endpoint, frozen, module = "sluice")]
pub struct Sender {
    sender: Arc<Shared<bus::Sender>>,
}

impl Sender {
    fn new(py: Python<'_>, sender: bus::Sender) -> PyResult<Py<Self>> {
        Py::new(py, extend(Shared::new(sender), |sender| Self { sender }))
    }
}

#[pymethods]
impl Sender {
    /// Sends a message, a bytes-like object, to those whom the delivery mode determines; with `to`, to the subscriber with this id. Waits
    /// while a subscriber that blocks senders has not received enough.
    #[pyo3(signature = (message, timeout=None, *, to=None))]
    fn send(
        &self,
        py: Python<'_>,
        message: Input<'_, '_>,
        timeout: Option<Seconds>,
        to: Option<u64>,
    ) -> PyResult<()> {
        let sender = self.sender.get()?;
        let message = message.as_slice(py);
        let sent = match to {
            Some(id) => sender.try_send_to(id, message),
            None => sender.try_send(message),
        };
        match sent {
            Err(SendError::Full) => send_later(py, &sender, message.to_vec(), timeout.into(), to),
            sent => sent.or_raise(py),
        }
    }

    /// The id of the endpoint, which no other endpoint of the bus ever has.
    #[getter]
    fn id(&self) -> PyResult<u64> {
        Ok(self.sender.get()?.id())
    }

    /// The largest message of the bus, in bytes.
    #[getter]
    fn message_max(&self) -> PyResult<u64> {
        Ok(self.sender.get()?.message_max())
    }

    /// The state of the bus and of this endpoint: a BusInfo.
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        bus_info(py, &self.sender.get()?.info().or_raise(py)?)
    }

    /// The subscribers of the bus, as SubscriberInfo objects.
    fn subscribers<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let subscribers = self.sender.get()?.subscribers().or_raise(py)?;
        subscribers
            .iter()
            .map(|subscriber| subscriber_info(py, subscriber))
            .collect()
    }
}

/// Waits for room. The message is a copy, which no other thread changes.
fn send_later(
    py: Python<'_>,
    sender: &bus::Sender,
    message: Vec<u8>,
    limit: Limit,
    to: Option<u64>,
) -> PyResult<()> {
    let waiting = Waiting::new(limit);
    loop {
        let slice = waiting.slice::<SendError>().or_raise(py)?;
        let sent = py.detach(|| match to {
            Some(id) => sender.send_to_timeout(id, &message, slice),
            None => sender.send_timeout(&message, slice),
        });
        match sent {
            Err(error) if error.is_pending() => py.check_signals()?,
            sent => return sent.or_raise(py),
        }
    }
}

/// Receives messages. Iteration ends when the bus is destroyed.
#[pyclass(extends = Endpoint, frozen, module = "sluice")]
pub struct Subscriber {
    subscriber: Arc<Exclusive<bus::Subscriber>>,
}

#[pymethods]
impl Subscriber {
    /// Returns the next Message. Waits for one. Fails with Closed when the bus is destroyed.
    #[pyo3(signature = (timeout=None))]
    fn recv(&self, py: Python<'_>, timeout: Option<Seconds>) -> PyResult<Message> {
        self.next(py, timeout.into(), |subscriber| {
            let message = subscriber.try_recv()?;
            Ok(Ok(Message::new(py, &message, message.bytes())))
        })
    }

    /// Returns the next messages, as many as there are and the buffer holds: one system call for many small messages. Waits for the first
    /// one.
    #[pyo3(signature = (timeout=None))]
    fn recv_batch(&self, py: Python<'_>, timeout: Option<Seconds>) -> PyResult<Vec<Message>> {
        self.next(py, timeout.into(), |subscriber| {
            let batch = subscriber.try_recv_batch()?;
            Ok(Ok(batch
                .map(|message| Message::new(py, &message, message.bytes()))
                .collect()))
        })
    }

    /// The id of the endpoint, which no other endpoint of the bus ever has.
    #[getter]
    fn id(&self) -> PyResult<u64> {
        self.subscriber.with(|subscriber| Ok(subscriber.id()))
    }

    /// The state of the bus and of this endpoint: a BusInfo.
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let state = self
            .subscriber
            .with(|subscriber| subscriber.info().or_raise(py))?;
        bus_info(py, &state)
    }
}

impl Subscriber {
    fn new(py: Python<'_>, subscriber: bus::Subscriber) -> PyResult<Py<Self>> {
        let class = |subscriber| Self { subscriber };
        Py::new(py, extend(Exclusive::new(subscriber), class))
    }

    fn next<T>(
        &self,
        py: Python<'_>,
        limit: Limit,
        attempt: impl FnMut(&mut bus::Subscriber) -> Result<PyResult<T>, RecvError>,
    ) -> PyResult<T> {
        self.subscriber
            .with(|subscriber| wait_for(py, limit, subscriber, attempt, sleep))
    }
}

/// Waits for a message, which stays the next one.
fn sleep(subscriber: &mut bus::Subscriber, time: Duration) -> Result<(), RecvError> {
    match poll(subscriber, libc::POLLIN, time) {
        0 => Err(RecvError::TimedOut(Timeout::receiving(time, subscriber))),
        _ => Ok(()),
    }
}

/// A message of a bus.
#[pyclass(subclass, frozen, get_all, module = "sluice")]
pub struct Message {
    /// The bytes of the message.
    data: Py<PyBytes>,
    /// The endpoint that sent it, to which a reply can be sent if it also subscribes.
    sender: u64,
    /// The subscriber that it is addressed to.
    target: Option<u64>,
    /// The number of the message, of all that were sent on the bus.
    sequence: u64,
    /// Messages that this subscriber lost since the one that it received before.
    lost: u64,
    /// The process that opened the endpoint of the sender, if it is visible here.
    pid: Option<u32>,
    /// The user that opened the endpoint of the sender.
    uid: u32,
    /// The group that opened the endpoint of the sender.
    gid: u32,
}

impl Message {
    pub fn new(py: Python<'_>, header: &Header, bytes: &[u8]) -> Self {
        Self {
            data: PyBytes::new(py, bytes).unbind(),
            sender: header.sender,
            target: header.target,
            sequence: header.sequence,
            lost: header.lost,
            pid: header.pid,
            uid: header.uid,
            gid: header.gid,
        }
    }
}

#[pymethods]
impl Message {
    fn __bytes__(&self, py: Python<'_>) -> Py<PyBytes> {
        self.data.clone_ref(py)
    }
}

pub fn bus_info<'py>(py: Python<'py>, bus: &BusInfo) -> PyResult<Bound<'py, PyAny>> {
    let policies: Vec<String> = bus
        .policies
        .iter()
        .map(|policy| policy.to_string())
        .collect();
    let endpoint = bus.endpoint.map(|endpoint| {
        let fields = fields!(py, endpoint;
            id, mapped, monitor, client, lost, lag;
            policy: endpoint.policy.map(|policy| policy.to_string()), spin_limit: endpoint.spin_limit.as_secs_f64());
        info("BusEndpointInfo", &fields)
    });
    let fields = fields!(py, bus;
        mappable, capacity, message_max, subscribers, senders, sent, unsubscribed, lost, evicted, lag;
        delivery: bus.mode.to_string(), policies: policies, endpoint: endpoint.transpose()?);
    info("BusInfo", &fields)
}

fn subscriber_info<'py>(
    py: Python<'py>,
    subscriber: &SubscriberInfo,
) -> PyResult<Bound<'py, PyAny>> {
    let fields = fields!(py, subscriber;
        id, mapped, monitor, client, lag, lost, pid, uid;
        policy: subscriber.policy.map(|policy| policy.to_string()));
    info("SubscriberInfo", &fields)
}
