// SPDX-License-Identifier: MIT OR Apache-2.0
//! Channels of any kind.

use pyo3::prelude::*;
use sluice::{ChannelInfo, Kind};

use crate::error::OrRaise as _;
use crate::options::{Name, Scope, named_value};
use crate::python::{fields, info};
use crate::wait::in_thread;

/// The kind of a channel ("pipe", "ring", "bus", "map" or "feed"), its name and its scope, to query or remove it. The channel need not exist.
#[pyclass(frozen, module = "sluice")]
pub struct Channel {
    channel: sluice::Channel,
}

#[pymethods]
impl Channel {
    #[new]
    #[pyo3(signature = (kind, name, *, scope=None))]
    fn new(py: Python<'_>, kind: &str, name: Name, scope: Option<Scope>) -> PyResult<Self> {
        let kinds = [Kind::Pipe, Kind::Ring, Kind::Bus, Kind::Map, Kind::Feed];
        let kind = named_value(kinds, kind, "kind")?;
        let channel = sluice::Channel::new(kind, name.0).or_raise(py)?;
        Ok(Self {
            channel: match scope {
                Some(scope) => channel.in_scope(scope.0),
                None => channel,
            },
        })
    }

    /// The state of the channel, which is not opened for it: a ChannelInfo.
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        channel_info(py, &self.channel.info().or_raise(py)?)
    }

    /// Removes the name. Open endpoints stay connected; a channel without endpoints is freed. Of a durable map, the daemon first deletes
    /// what is stored.
    fn unlink(&self, py: Python<'_>) -> PyResult<()> {
        let channel = self.channel.clone();
        in_thread(py, move || channel.unlink())?.or_raise(py)
    }

    /// As unlink(), and ends the channel for the processes that have it open.
    fn destroy(&self, py: Python<'_>) -> PyResult<()> {
        let channel = self.channel.clone();
        in_thread(py, move || channel.destroy())?.or_raise(py)
    }
}

/// Lists the channels of a scope as ChannelInfo objects, sorted by kind and name.
#[pyfunction]
#[pyo3(signature = (*, scope=None))]
pub fn channels<'py>(py: Python<'py>, scope: Option<Scope>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let scope = scope.map_or_else(sluice::Scope::own, sluice::Scope::from);
    let listed = sluice::list(&scope).or_raise(py)?;
    listed
        .map(|channel| channel_info(py, &channel.or_raise(py)?))
        .collect()
}

fn channel_info<'py>(py: Python<'py>, channel: &ChannelInfo) -> PyResult<Bound<'py, PyAny>> {
    let fields = fields!(py, channel;
        persistent, uid, gid, readers, writers, capacity, bytes, messages, total_bytes, lost, lag, waiting;
        kind: channel.kind.to_string(), name: channel.name.as_bytes(), permissions: channel.mode);
    info("ChannelInfo", &fields)
}
