// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keyword arguments as the options of a channel.

use std::os::fd::{BorrowedFd, RawFd};
use std::path::PathBuf;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use sluice::{Creatable, Options};

use crate::error::OrRaise as _;

/// The name of a channel.
pub struct Name(pub Vec<u8>);

impl<'py> FromPyObject<'_, 'py> for Name {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        match object.cast::<PyBytes>() {
            Ok(bytes) => Ok(Self(bytes.as_bytes().to_vec())),
            Err(_) => Ok(Self(object.extract::<String>()?.into_bytes())),
        }
    }
}

/// The directory of a cgroup: a path, or a descriptor, which is duplicated.
pub struct Scope(pub sluice::Scope);

impl<'py> FromPyObject<'_, 'py> for Scope {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let py = object.py();
        if let Ok(fd @ 0..) = object.extract::<RawFd>() {
            // SAFETY: it is borrowed for the duplication only, which fails if it is not open.
            let directory = unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned()?;
            return Ok(Self(directory.into()));
        }
        let path: PathBuf = object.extract()?;
        sluice::Scope::at(path).or_raise(py).map(Self)
    }
}

impl From<Scope> for sluice::Scope {
    fn from(scope: Scope) -> Self {
        scope.0
    }
}

/// The keyword arguments of a call that were not used yet.
pub struct Keywords<'py>(Option<Bound<'py, PyDict>>);

impl<'py> Keywords<'py> {
    pub fn new(keywords: Option<&Bound<'py, PyDict>>) -> PyResult<Self> {
        Ok(Self(keywords.map(|keywords| keywords.copy()).transpose()?))
    }

    /// None if there is no such argument, or it is None.
    pub fn take<T>(&self, name: &str) -> PyResult<Option<T>>
    where
        T: for<'a> FromPyObject<'a, 'py, Error = PyErr>,
    {
        let Some(keywords) = &self.0 else {
            return Ok(None);
        };
        let Some(value) = keywords.get_item(name)? else {
            return Ok(None);
        };
        keywords.del_item(name)?;
        value.extract()
    }

    /// Fails if arguments are left.
    pub fn finish(self) -> PyResult<()> {
        let unknown = self
            .0
            .and_then(|keywords| keywords.keys().into_iter().next());
        match unknown {
            None => Ok(()),
            Some(name) => Err(PyTypeError::new_err(format!(
                "this kind of channel has no option '{name}'"
            ))),
        }
    }
}

/// Sets the options that the keyword arguments name.
macro_rules! apply {
    ($options:ident, $keywords:expr; $($name:ident: $value:ty),* $(,)?) => {$(
        if let Some(value) = $keywords.take::<$value>(stringify!($name))? {
            $options = $options.$name(value.into());
        }
    )*};
}

pub(crate) use apply;

/// The value whose text this is.
pub fn named_value<T: ToString, const N: usize>(
    values: [T; N],
    name: &str,
    what: &str,
) -> PyResult<T> {
    let found = values.into_iter().find(|value| value.to_string() == name);
    found.ok_or_else(|| PyValueError::new_err(format!("there is no {what} '{name}'")))
}

/// The options of all kinds that programs create.
pub fn common<K: Creatable>(
    mut options: Options<K>,
    keywords: &Keywords<'_>,
) -> PyResult<Options<K>> {
    apply!(options, keywords;
        scope: Scope, create: bool, any_owner: bool, exclusive: bool, persistent: bool, permissions: u32, capacity: u64);
    Ok(options)
}
