// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records from one process to another through shared memory: no module, no privilege, and no system call while both keep up.
//!
//! Two processes meet over a Unix socket ([`Listener`], [`Socket`]). One becomes the [`Producer`], the other the
//! [`Consumer`], as their [`Options`] say. Each has memory that only it can write to, so that neither can do the other any
//! harm: what the other side writes is read once and checked, and a side that does not keep to the rules gets its partner an
//! [`Error`] and nothing else.
//!
//! The one side:
//!
//! ```no_run
//! use sluice::ring::{Listener, Options};
//!
//! let listener = Listener::bind("/run/user/1000/prices")?;
//! let mut producer = Options::new().producer(listener.accept()?)?;
//! producer.send(b"4711 99.50")?;
//!
//! let mut room = producer.reserve(64)?; // or in place
//! room[..4].copy_from_slice(b"4712");
//! room.commit_first(4);
//! # Ok::<(), sluice::ring::Error>(())
//! ```
//!
//! The other side:
//!
//! ```no_run
//! use sluice::ring::{Options, Socket};
//!
//! let socket = Socket::connect("/run/user/1000/prices")?;
//! let mut consumer = Options::new().consumer(socket)?;
//! let mut record = vec![0; consumer.longest()];
//! while let Some(length) = consumer.recv(&mut record)? {
//!     println!("{:?}", &record[..length]);
//! }
//! # Ok::<(), sluice::ring::Error>(())
//! ```
//!
//! A waiting call spins for a while and then sleeps ([`Options::spin`]). Waiting ends when the other end is closed, which is
//! the end of the stream, and when its process dies, which is [`Error::Died`]. With the feature `tokio` there are
//! `AsyncProducer` and `AsyncConsumer`.
//!
//! The protocol, for other implementations, is in docs/abi.md. A side belongs to the process that set it up. A child that was
//! forked later can drop its copy, which changes nothing, and must not use it.

#[cfg(feature = "tokio")]
mod asynchronous;
mod atomic_copy;
mod connection;
mod consumer;
mod copy;
mod error;
mod handshake;
mod hang_up;
mod mapping;
mod memfd;
mod options;
mod producer;
mod record;
mod region;
mod socket;

#[cfg(feature = "tokio")]
pub use asynchronous::{AsyncConsumer, AsyncProducer};
pub use consumer::{Batch as ReceivedBatch, Consumer, Record};
pub use error::{Error, Result};
pub use options::Options;
pub use producer::{Batch as SentBatch, Producer, Reservation};
pub use record::Bytes;
pub use sluice_ring::{InvalidCapacity, ProtocolViolation};
pub use socket::{Listener, Socket};
