// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pipes, rings, buses and maps between the processes of one cgroup, and packets from kernel modules, through the Sluice kernel module; and
//! rings between any two processes, without it.
//!
//! Each kind of channel has one chain of options, which begins with its name: [`Pipe::named`], [`Ring::named`], [`Bus::named`],
//! [`Map::named`] or [`Feed::named`]. It ends with a call that opens, queries or removes the channel. Names are those of the caller's
//! cgroup, or of another [`Scope`]. A [`Channel`] is for programs that treat all kinds alike, as [`list`] does.
//!
//! The reader of a pipe:
//!
//! ```no_run
//! use std::io::Read as _;
//!
//! let mut greeting = String::new();
//! sluice::Pipe::named("greetings")
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
//! sluice::Pipe::named("greetings")
//!     .create(true)
//!     .writer()? // waits for a reader
//!     .write_all(b"hello")?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | kind | carries | from | to |
//! |---|---|---|---|
//! | [`pipe`] | bytes | writers | readers |
//! | [`ring`] | records, through shared memory | one producer | one consumer |
//! | [`bus`] | messages | senders | subscribers |
//! | [`map`] | keys and values, which processes set, get and watch | | |
//! | [`feed`] | packets | a kernel module | one consumer |
//!
//! A ring is also set up over a Unix socket, without the module: see [`ring`], and sluice-ring(7) for the choice between pipe and ring. A
//! durable map survives a restart of the host.
//!
//! # Errors
//!
//! An operation has an error type where callers distinguish causes. Each has `kind()`, `raw_os_error()` and `hint()`, what to do about it, and
//! becomes an [`io::Error`](std::io::Error). [`explain`] puts message, causes and hint into one line, also those of an error in a box:
//!
//! ```
//! let opened = sluice::Pipe::named("a/b").reader();
//! let error: Box<dyn std::error::Error> = opened.unwrap_err().into();
//! eprintln!("{}", sluice::explain(&*error));
//! ```
//!
//! # Features
//!
//! The feature `tokio` adds asynchronous types for the endpoints of all kinds, and for the watchers of a map; other calls of a durable map
//! wait for its store. They are made of the synchronous ones, as in `AsyncSubscriber::new(bus.subscriber()?)?`; only a ring over a socket
//! is set up asynchronously, too (`SocketOptions::async_consumer`). The runtime needs I/O, and timers for calls with a timeout:
//! `#[tokio::main]` has both. As streams, they need the methods of the crate futures-util or tokio-stream. The feature `serde` adds `Typed` (values over rings and buses) and `map::TypedMap`.

pub mod bus;
mod channel;
mod diagnosis;
mod error;
mod escape;
mod explain;
mod features;
pub mod feed;
mod info;
mod kind;
mod list;
pub mod map;
mod name;
mod options;
pub mod pipe;
pub mod ring;
mod scope;
mod shared;
mod store_error;
mod sys;
mod system_error;
mod timeout;
#[cfg(feature = "tokio")]
mod tokio;
#[cfg(feature = "serde")]
mod typed;
mod usage;
mod wait;

pub use bus::Bus;
pub use channel::Channel;
pub use diagnosis::Diagnosis;
pub use error::{Error, Owner, Result};
pub use escape::escape;
pub use explain::explain;
pub use features::{Features, features};
pub use feed::Feed;
pub use info::ChannelInfo;
pub use kind::Kind;
pub use list::{List, list};
pub use map::Map;
pub use name::Name;
pub use options::{ChannelKind, Creatable, DEFAULT_PERMISSIONS, Options};
pub use pipe::Pipe;
pub use ring::Ring;
pub use scope::Scope;
pub use shared::bytes::Bytes;
pub use store_error::StoreError;
pub use system_error::SystemError;
pub use timeout::Timeout;
#[cfg(feature = "serde")]
pub use typed::{CodecError, Typed, TypedError};
pub use usage::{Account, Usage, usage};
pub use wait::Wait;

/// The examples of the crate's own README.md.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct CrateReadme;
