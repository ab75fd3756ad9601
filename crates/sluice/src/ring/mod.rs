// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rings: records from one process to another through shared memory, without the module, without privileges, and without system
//! calls while neither side waits.
//!
//! Two processes connect over a Unix socket ([`Listener`], [`Socket`]). One becomes the [`Producer`], the other the
//! [`Consumer`], by their [`Options`]. Each side can write only to its own memory, and reads each value of the other side once
//! and validates it: a malicious peer can cause a [`ProtocolViolation`] and nothing else.
//!
//! One side:
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
//! room.commit_len(4);
//! producer.flush()?; // until all records are released
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! The other side:
//!
//! ```no_run
//! use sluice::ring::{Options, Socket};
//!
//! let socket = Socket::connect("/run/user/1000/prices")?;
//! let mut consumer = Options::new().consumer(socket)?;
//! while let Some(record) = consumer.peek()? {
//!     let number: Option<[u8; 4]> = record.read_at(0); // in place
//!     println!("{number:?} in {:?}", record.to_vec());
//!     record.release();
//! }
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! | | sends | receives |
//! |---|---|---|
//! | copying | [`send`](Producer::send) | [`recv`](Consumer::recv) |
//! | in place | [`reserve`](Producer::reserve) | [`peek`](Consumer::peek) |
//! | several at once | [`batch`](Producer::batch) | [`batch`](Consumer::batch) |
//!
//! Calls that start with `try_` do not wait, and those that end with `_timeout` wait for a limited time. A call that waits spins for up
//! to 100 µs by default, then blocks ([`Options::spin`]); both sides can also [wait](Consumer::prepare_wait) for several rings with
//! poll(2). A wait ends when the peer closes the ring (end of stream) and when it dies ([`RecvError::PeerDied`],
//! [`SendError::PeerDied`]). With the feature `tokio` there are `AsyncProducer` and `AsyncConsumer`.
//!
//! docs/abi.md defines the protocol. A side belongs to the process that set it up: a forked child must not use its copy, and
//! dropping the copy has no effect.

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
mod tokio;

#[cfg(feature = "tokio")]
pub use self::tokio::{AsyncConsumer, AsyncListener, AsyncProducer, AsyncWriteBatch};
pub use consumer::{Consumer, ReadBatch, Record};
pub use error::{RecvError, SendError, SetupError, SystemError};
pub use options::Options;
pub use producer::{Producer, Reservation, WriteBatch};
pub use record::Bytes;
pub use sluice_ring::{InvalidCapacity, ProtocolViolation};
pub use socket::{Listener, Socket};
