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
}
