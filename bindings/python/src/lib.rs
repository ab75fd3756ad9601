// SPDX-License-Identifier: MIT OR Apache-2.0
//! The extension module of the Python package `sluice`.

mod buffer;
mod bus;
mod channel;
mod endpoint;
mod error;
mod feed;
mod map;
mod options;
mod pipe;
mod python;
mod requests;
mod ring;
mod socket;
mod wait;

use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;

// Free-threaded builds are not supported: memory that is exported is protected by the GIL.
#[pymodule(gil_used = true)]
mod _sluice {
    #[pymodule_export]
    use super::buffer::{Record, Reservation};
    #[pymodule_export]
    use super::bus::{Bus, Message, Sender, Subscriber};
    #[pymodule_export]
    use super::channel::{Channel, channels};
    #[pymodule_export]
    use super::endpoint::Endpoint;
    #[pymodule_export]
    use super::feed::{Feed, FeedConsumer, Packet};
    #[pymodule_export]
    use super::map::{Entry, Event, Map, Watcher};
    #[pymodule_export]
    use super::pipe::{Pipe, PipeReader, PipeWriter};
    #[pymodule_export]
    use super::requests::{Client, Request, Server};
    #[pymodule_export]
    use super::ring::{Consumer, Producer, Ring};
    #[pymodule_export]
    use super::socket::{Listener, SocketRing};

    use super::*;

    /// The classes are those of one interpreter.
    #[pymodule_init]
    fn check_interpreter(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let _attached = module.py();
        // SAFETY: this thread is attached to the interpreter. The main one has the number 0.
        match unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) } {
            0 => Ok(()),
            _ => Err(PyImportError::new_err(
                "sluice does not support subinterpreters; import it in the main interpreter of a process",
            )),
        }
    }
}
