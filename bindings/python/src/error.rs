// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exceptions for the errors of the library. Their classes are in `sluice/_errors.py`.

use std::error::Error as StdError;
use std::io::{self, ErrorKind};

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use sluice::map::WriteError;
use sluice::{Diagnosis, explain};

/// Turns an error of the library into an exception.
pub trait OrRaise<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T, E: StdError + 'static> OrRaise<T> for Result<T, E> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| exception(py, &error))
    }
}

pub fn exception(py: Python<'_>, error: &(dyn StdError + 'static)) -> PyErr {
    static BUILD: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let built = BUILD
        .import(py, "sluice._errors", "build")
        .and_then(|build| build.call1(arguments(error)));
    built.map_or_else(|failure| failure, PyErr::from_value)
}

type Arguments = (&'static str, Option<i32>, String, String, Option<u64>);

/// The name of the class, errno, message, hint, and the number of a change.
fn arguments(error: &(dyn StdError + 'static)) -> Arguments {
    let text = explain(error);
    let Some(diagnosis) = Diagnosis::of(error) else {
        let system = error.downcast_ref::<io::Error>();
        let errno = system.and_then(io::Error::raw_os_error);
        return (
            system.map_or("Error", |error| class(error.kind())),
            errno,
            text,
            String::new(),
            None,
        );
    };
    let hint = diagnosis.hint.into_owned();
    let message = text
        .strip_suffix(&format!("; {hint}"))
        .unwrap_or(&text)
        .to_owned();
    let (name, number) = match error.downcast_ref::<WriteError>() {
        Some(WriteError::Unacknowledged { number }) => ("Unacknowledged", Some(*number)),
        Some(error) if error.is_conflict() => ("Conflict", None),
        _ => (class(diagnosis.kind), None),
    };
    (name, diagnosis.raw_os_error, message, hint, number)
}

fn class(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::WouldBlock => "WouldBlock",
        ErrorKind::TimedOut => "Timeout",
        ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof => "Closed",
        ErrorKind::ConnectionReset => "PeerDied",
        ErrorKind::ConnectionAborted => "Aborted",
        ErrorKind::NotConnected => "NotConnected",
        ErrorKind::ConnectionRefused => "Refused",
        ErrorKind::NotFound => "NotFound",
        ErrorKind::AlreadyExists => "AlreadyExists",
        ErrorKind::PermissionDenied => "PermissionDenied",
        ErrorKind::InvalidInput => "InvalidInput",
        ErrorKind::Unsupported => "Unsupported",
        ErrorKind::QuotaExceeded => "Full",
        _ => "Error",
    }
}
