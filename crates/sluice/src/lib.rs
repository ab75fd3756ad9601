// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pipes, rings, buses and maps between the processes of one cgroup, and packets from kernel modules, through the Sluice kernel module; and
//! rings between any two processes, without it.
//!
//! # Pipes
//!
//! A [`Pipe`] is the unnamed pipe of the caller's cgroup; [`Channel::pipe`] names one, in the caller's cgroup or in another
//! [`Scope`]. Both open as a [`Reader`] or a [`Writer`], which behave like the two ends of a FIFO: see sluice-pipe(4) and
//! fifo(7).
//!
//! The reader:
//!
//! ```no_run
//! use std::io::Read as _;
//!
//! let mut greeting = String::new();
//! sluice::Channel::pipe("greetings")?
//!     .options()
//!     .create(true)
//!     .reader()? // waits for a writer
//!     .read_to_string(&mut greeting)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The writer, another process of the same cgroup:
//!
//! ```no_run
//! use std::io::Write as _;
//!
//! sluice::Channel::pipe("greetings")?
//!     .options()
//!     .create(true)
//!     .writer()? // waits for a reader
//!     .write_all(b"hello")?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Rings
//!
//! A ring carries records from one process to another through shared memory. It is set up over a Unix socket, without the
//! module, or is a device ring, a channel with a name ([`Channel::ring`]): see [`ring`], and sluice-ring(7) for the choice between pipe and ring.
//!
//! # Buses
//!
//! A bus ([`Channel::bus`]) carries messages from many senders to many subscribers: see [`bus`].
//!
//! # Maps
//!
//! A map ([`Channel::map`]) has keys and values, which processes set, get and watch: see [`map`]. A durable one survives a restart of the
//! host; [`keeper`] is the interface of the daemon that stores it.
//!
//! # Feeds
//!
//! A feed carries packets from a kernel module to one process: see [`feed`] and sluice-feed(4).
//!
//! The feature `tokio` adds `AsyncReader` and `AsyncWriter`, and asynchronous types for both sides of a ring and of a
//! bus, and for the watchers of a map. The feature `serde` adds maps of types that implement the traits of serde.

pub mod bus;
mod channel;
mod control;
mod diagnosis;
mod endpoint;
mod error;
mod escape;
mod features;
pub mod feed;
mod info;
pub mod keeper;
mod list;
pub mod map;
mod name;
mod pipe;
pub mod ring;
mod scope;
#[cfg(feature = "tokio")]
mod tokio;

#[cfg(feature = "tokio")]
pub use self::tokio::{AsyncReader, AsyncWriter};
pub use channel::{Channel, OpenOptions};
pub use diagnosis::{Diagnosis, explain};
pub use endpoint::{Reader, Writer};
pub use error::{Error, Owner, Result};
pub use escape::escape;
pub use features::{Features, features};
pub use info::{ChannelInfo, Kind, PipeInfo};
pub use list::{List, list};
pub use name::Name;
pub use pipe::Pipe;
pub use scope::Scope;

/// The example of README.md, compiled by `cargo test`.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
