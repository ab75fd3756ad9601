// SPDX-License-Identifier: MIT OR Apache-2.0
//! Maps. `sluice/_map.py` adds what a mutable mapping has.

use std::sync::{Arc, Mutex};

use pyo3::exceptions::{PyKeyError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict};
use sluice::map::{self, DeleteOptions, Durability, Outcome, SetOptions, WatchFrom};

use crate::buffer::Input;
use crate::endpoint::{Endpoint, Exclusive, Shared, extend};
use crate::error::{OrRaise as _, exception};
use crate::options::{Keywords, Name, apply, common};
use crate::python::{fields, info};
use crate::wait::{Seconds, in_thread, readable, wait_for};

/// An open map. Several threads may use it at the same time.
#[pyclass(extends = Endpoint, subclass, frozen, module = "sluice")]
pub struct Map {
    map: Arc<Shared<sluice::Map>>,
    /// Changes may wait for the store.
    is_durable: bool,
}

#[pymethods]
impl Map {
    #[new]
    #[pyo3(signature = (name, access="both", **options))]
    fn new(
        py: Python<'_>,
        name: Name,
        access: &str,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let open = match access {
            "both" => map::Options::open,
            "read" => map::Options::open_reader,
            "write" => map::Options::open_writer,
            _ => return Err(PyValueError::new_err("access is 'both', 'read' or 'write'")),
        };
        let options = named(name, options)?;
        // The open of a durable map may wait for the store.
        let map = in_thread(py, move || open(&options))?.or_raise(py)?;
        let is_durable = map.info().is_ok_and(|info| info.durable.is_some());
        let class = |map| Self { map, is_durable };
        Ok(extend(Shared::new(map), class))
    }

    /// Creates a map that exists until it is removed. Fails with AlreadyExists if it exists.
    #[staticmethod]
    #[pyo3(signature = (name, **options))]
    fn create(py: Python<'_>, name: Name, options: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
        let options = named(name, options)?;
        in_thread(py, move || options.create_persistent())?.or_raise(py)
    }

    /// Returns the value of a key, or the default if there is no entry.
    #[pyo3(signature = (key, default=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: Input<'_, '_>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let entry = self.map.get()?.get(key.as_slice(py)).or_raise(py)?;
        Ok(match entry {
            Some(entry) => Some(PyBytes::new(py, &entry.value).into_any()),
            None => default,
        })
    }

    /// Returns the Entry of a key: its value, version and time to live. None if there is no entry.
    fn entry(&self, py: Python<'_>, key: Input<'_, '_>) -> PyResult<Option<Entry>> {
        let entry = self.map.get()?.get(key.as_slice(py)).or_raise(py)?;
        Ok(entry.map(|entry| Entry::new(py, &entry)))
    }

    /// Sets the value of a key. Returns the version of the entry from then on.
    ///
    /// With a version, only if the entry has that version; 0: only if there is no entry. Otherwise it fails with Conflict. The entry is
    /// removed after ttl seconds; by default never. A durable map stores the change before this returns, unless wait is False.
    #[pyo3(signature = (key, value, *, version=None, ttl=None, wait=true))]
    fn set(
        &self,
        py: Python<'_>,
        key: Input<'_, '_>,
        value: Input<'_, '_>,
        version: Option<u64>,
        ttl: Option<Seconds>,
        wait: bool,
    ) -> PyResult<u64> {
        let options = set_options(version, ttl, wait);
        let (key, value) = (key.as_slice(py).to_vec(), value.as_slice(py).to_vec());
        let set = self.change(py, wait, move |map| map.set_with(key, value, options))?;
        Ok(set.or_raise(py)?.version)
    }

    /// Sets the value of a key if its entry has this version; with version 0, creates the entry. Otherwise fails with Conflict. Returns the
    /// new version.
    fn compare_and_set(
        &self,
        py: Python<'_>,
        key: Input<'_, '_>,
        version: u64,
        value: Input<'_, '_>,
    ) -> PyResult<u64> {
        self.set(py, key, value, Some(version), None, true)
    }

    /// Deletes the entry of a key. Returns the number of that change, or None if there is no entry.
    ///
    /// With a version, only if the entry has that version. Otherwise it fails with Conflict. A durable map stores the change before this
    /// returns, unless wait is False.
    #[pyo3(signature = (key, *, version=None, wait=true))]
    fn delete(
        &self,
        py: Python<'_>,
        key: Input<'_, '_>,
        version: Option<u64>,
        wait: bool,
    ) -> PyResult<Option<u64>> {
        let options = delete_options(version, wait);
        let key = key.as_slice(py).to_vec();
        self.change(py, wait, move |map| map.delete_with(key, options))?
            .or_raise(py)
    }

    /// Waits until the changes of a durable map up to a number are stored, by default all. Returns the number up to which they are.
    #[pyo3(signature = (number=None))]
    fn sync(&self, py: Python<'_>, number: Option<u64>) -> PyResult<u64> {
        let sync = move |map: &sluice::Map| match number {
            Some(number) => map.sync_to(number),
            None => map.sync(),
        };
        self.change(py, true, sync)?.or_raise(py)
    }

    /// Watches the changes of the map. The first one is the next change, or the one after the sequence `after`; 0: all that the map keeps.
    /// An open map has one watcher at a time.
    #[pyo3(signature = (after=None))]
    fn watch(&self, py: Python<'_>, after: Option<u64>) -> PyResult<Py<Watcher>> {
        let from = after.map_or(WatchFrom::Now, WatchFrom::After);
        let watcher = Exclusive::new(self.map.get()?.watch(from).or_raise(py)?);
        Py::new(py, extend(watcher, |watcher| Watcher { watcher }))
    }

    /// Iterates over the keys and their Entry objects, in no order.
    fn entries(&self) -> PyResult<Cursor> {
        let map = self.map.get()?;
        // SAFETY: the cursor keeps the map at its address, and drops the iterator first.
        let mut entries = unsafe { &*Arc::as_ptr(&map) }.entries();
        Ok(Cursor::new(map, move |py| {
            let Some((key, entry)) = entries.next().transpose().or_raise(py)? else {
                return Ok(None);
            };
            let pair = (PyBytes::new(py, &key), Entry::new(py, &entry));
            Ok(Some(pair.into_pyobject(py)?.into_any().unbind()))
        }))
    }

    fn __iter__(&self) -> PyResult<Cursor> {
        let map = self.map.get()?;
        // SAFETY: as in entries().
        let mut keys = unsafe { &*Arc::as_ptr(&map) }.keys();
        Ok(Cursor::new(map, move |py| {
            let key = keys.next().transpose().or_raise(py)?;
            Ok(key.map(|(key, _)| PyBytes::new(py, &key).into_any().unbind()))
        }))
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.map.get()?.info().or_raise(py)?.entries.try_into()?)
    }

    fn __contains__(&self, py: Python<'_>, key: Input<'_, '_>) -> PyResult<bool> {
        // Longer values are found, too.
        match self.map.get()?.get_into(key.as_slice(py), &mut []) {
            Err(map::ReadError::BufferTooSmall { .. }) => Ok(true),
            found => Ok(found.or_raise(py)?.is_some()),
        }
    }

    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        key: Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.get(py, key.extract()?, None)?
            .ok_or_else(|| PyKeyError::new_err(key.unbind()))
    }

    fn __setitem__(
        &self,
        py: Python<'_>,
        key: Input<'_, '_>,
        value: Input<'_, '_>,
    ) -> PyResult<()> {
        self.set(py, key, value, None, None, true).map(drop)
    }

    fn __delitem__(&self, py: Python<'_>, key: Bound<'_, PyAny>) -> PyResult<()> {
        match self.delete(py, key.extract()?, None, true)? {
            Some(_) => Ok(()),
            None => Err(PyKeyError::new_err(key.unbind())),
        }
    }

    /// The state of the map: a MapInfo.
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let state = self.map.get()?.info().or_raise(py)?;
        let durable = state
            .durable
            .map(|durable| durable_info(py, &durable))
            .transpose()?;
        let fields = fields!(py, state;
            capacity, bytes, entries_max, entries, sequence, expired, missed, events, watchers, watched;
            durable: durable);
        info("MapInfo", &fields)
    }

    /// Executes operations with one system call for up to 256 of them; of Batch.
    fn _run(
        &self,
        py: Python<'_>,
        operations: Vec<Operation>,
        value_room: usize,
    ) -> PyResult<Vec<Py<PyAny>>> {
        let wait = operations.iter().any(Operation::waits);
        let run = move |map: &sluice::Map| {
            let batch = map.batch().value_room(value_room);
            operations
                .iter()
                .fold(batch, |batch, operation| operation.add_to(batch))
                .run()
        };
        let outcomes = self.change(py, wait, run)?;
        outcomes
            .into_iter()
            .map(|outcome| result(py, outcome))
            .collect()
    }
}

impl Map {
    /// Makes a call, which waits for the store if the map is durable.
    fn change<T: Send + 'static>(
        &self,
        py: Python<'_>,
        wait: bool,
        call: impl FnOnce(&sluice::Map) -> T + Send + 'static,
    ) -> PyResult<T> {
        let map = self.map.get()?;
        match self.is_durable && wait {
            true => in_thread(py, move || call(&map)),
            false => Ok(call(&map)),
        }
    }
}

fn named(name: Name, keywords: Option<&Bound<'_, PyDict>>) -> PyResult<map::Options> {
    let keywords = Keywords::new(keywords)?;
    let mut options = common(sluice::Map::named(name.0), &keywords)?;
    apply!(options, keywords; entries: u64, events: u32);
    let is_durable = keywords.take("durable")?.unwrap_or(false);
    let interval: Option<Seconds> = keywords.take("interval")?;
    let mut durability = match interval {
        Some(time) => Durability::interval(time.into()),
        None => Durability::always(),
    };
    apply!(durability, keywords; deadline: Seconds, refuse: bool);
    match (is_durable, durability == Durability::always()) {
        (true, _) => options = options.durable(durability),
        (false, true) => {}
        (false, false) => {
            let text = "interval, deadline and refuse are options of durable maps";
            return Err(PyTypeError::new_err(text));
        }
    }
    keywords.finish()?;
    Ok(options)
}

fn durable_info<'py>(py: Python<'py>, state: &map::DurableInfo) -> PyResult<Bound<'py, PyAny>> {
    let fields = fields!(py, state;
        refuse, stored, pending;
        interval: state.interval.map(|time| time.as_secs_f64()),
        deadline: state.deadline.as_secs_f64(),
        store_error: state.store_error.map(|error| error.to_string()));
    info("DurableInfo", &fields)
}

fn set_options(version: Option<u64>, ttl: Option<Seconds>, wait: bool) -> SetOptions {
    let mut options = SetOptions::new().nowait(!wait);
    if let Some(version) = version {
        options = options.if_version(version);
    }
    match ttl {
        Some(ttl) => options.time_to_live(ttl.into()),
        None => options,
    }
}

fn delete_options(version: Option<u64>, wait: bool) -> DeleteOptions {
    let options = DeleteOptions::new().nowait(!wait);
    match version {
        Some(version) => options.if_version(version),
        None => options,
    }
}

/// An operation of a batch. The bytes are those of the objects: the GIL is released while it waits for the store.
enum Operation {
    Get(PyBackedBytes),
    Set(PyBackedBytes, PyBackedBytes, SetOptions, bool),
    Delete(PyBackedBytes, DeleteOptions, bool),
}

impl<'py> FromPyObject<'_, 'py> for Operation {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let (key, value, deletes, version, ttl, wait) =
            object.extract::<(_, Option<PyBackedBytes>, bool, _, _, _)>()?;
        Ok(match value {
            Some(value) => Self::Set(key, value, set_options(version, ttl, wait), wait),
            None if deletes => Self::Delete(key, delete_options(version, wait), wait),
            None => Self::Get(key),
        })
    }
}

impl Operation {
    fn waits(&self) -> bool {
        matches!(self, Self::Set(.., true) | Self::Delete(.., true))
    }

    fn add_to<'a>(&'a self, batch: map::Batch<'a>) -> map::Batch<'a> {
        match self {
            Self::Get(key) => batch.get(key),
            Self::Set(key, value, options, _) => batch.set_with(key, value, *options),
            Self::Delete(key, options, _) => batch.delete_with(key, *options),
        }
    }
}

/// The result of an operation of a batch, or its exception.
fn result(py: Python<'_>, outcome: Outcome) -> PyResult<Py<PyAny>> {
    let failed = |error: PyErr| error.into_value(py).into_any();
    Ok(match outcome {
        Outcome::Get(Ok(None)) | Outcome::Delete(Ok(None)) => py.None(),
        Outcome::Get(Ok(Some(entry))) => Py::new(py, Entry::new(py, &entry))?.into_any(),
        Outcome::Set(Ok(set)) => set.version.into_pyobject(py)?.into_any().unbind(),
        Outcome::Delete(Ok(Some(number))) => number.into_pyobject(py)?.into_any().unbind(),
        Outcome::Get(Err(error)) => failed(exception(py, &error)),
        Outcome::Set(Err(error)) | Outcome::Delete(Err(error)) => failed(exception(py, &error)),
    })
}

/// An entry of a map.
#[pyclass(frozen, get_all, module = "sluice")]
pub struct Entry {
    value: Py<PyBytes>,
    /// The sequence of the last change of the entry.
    version: u64,
    /// What was left of its time to live when it was read, in seconds. None: it never expires.
    ttl: Option<f64>,
}

impl Entry {
    fn new(py: Python<'_>, entry: &map::Entry) -> Self {
        Self {
            value: PyBytes::new(py, &entry.value).unbind(),
            version: entry.version,
            ttl: entry.time_to_live.map(|time| time.as_secs_f64()),
        }
    }
}

type Next = dyn FnMut(Python<'_>) -> PyResult<Option<Py<PyAny>>> + Send;

/// The iterator over a map, which it keeps open.
#[pyclass(frozen, module = "sluice")]
pub struct Cursor {
    /// Dropped before the map.
    next: Mutex<Box<Next>>,
    _map: Arc<sluice::Map>,
}

impl Cursor {
    fn new(
        map: Arc<sluice::Map>,
        next: impl FnMut(Python<'_>) -> PyResult<Option<Py<PyAny>>> + Send + 'static,
    ) -> Self {
        Self {
            next: Mutex::new(Box::new(next)),
            _map: map,
        }
    }
}

#[pymethods]
impl Cursor {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        // Not lock(): it would wait with the GIL, which the call in progress may have released for Python code.
        match self.next.try_lock() {
            Ok(mut next) => next(py),
            Err(_) => Err(PyRuntimeError::new_err(
                "another call uses the iterator; use one iterator per thread",
            )),
        }
    }
}

/// Receives the changes of a map, in their order. Iteration ends when the map is destroyed.
#[pyclass(extends = Endpoint, frozen, module = "sluice")]
pub struct Watcher {
    watcher: Arc<Exclusive<map::Watcher>>,
}

#[pymethods]
impl Watcher {
    /// Returns the next Event. Waits for one. Fails with Closed when the map is destroyed.
    #[pyo3(signature = (timeout=None))]
    fn recv(&self, py: Python<'_>, timeout: Option<Seconds>) -> PyResult<Event> {
        let attempt = |watcher: &mut map::Watcher| {
            let event = watcher.try_recv();
            event.map(|event| Ok(Event::new(py, &event)))
        };
        self.watcher
            .with(|watcher| wait_for(py, timeout.into(), watcher, attempt, readable))
    }

    /// The sequence of the last change before the first event.
    #[getter]
    fn since(&self) -> PyResult<u64> {
        self.watcher.with(|watcher| Ok(watcher.since()))
    }
}

/// A change of a map. It has no value: get() of the map returns the present one, which may be that of a later change.
#[pyclass(frozen, get_all, module = "sluice")]
pub struct Event {
    /// "created", "updated", "deleted" or "expired".
    change: String,
    key: Py<PyBytes>,
    /// The number of the change.
    sequence: u64,
    /// The version of the entry; of one that was deleted or has expired, the version that it had.
    version: u64,
    /// Changes directly before this one that the watcher has missed.
    missed: u64,
}

impl Event {
    fn new(py: Python<'_>, event: &map::Event) -> Self {
        Self {
            change: event.change.to_string(),
            key: PyBytes::new(py, &event.key).unbind(),
            sequence: event.sequence,
            version: event.version,
            missed: event.missed,
        }
    }
}
