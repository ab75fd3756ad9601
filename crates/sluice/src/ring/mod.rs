// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records from one process to another through shared memory: no module, no privilege, and no system call while both keep up.
//!
//! Two processes meet over a Unix socket ([`Listener`], [`Socket`]). One becomes the [`Producer`], the other the
//! [`Consumer`], as their [`Options`] say. Each has memory that only it can write to, so that neither can do the other any
//! harm: what the other side writes is read once and checked, and a side that does not keep to the rules gets its partner an
//! [`Error`] and nothing else.
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
//! producer.flush()?; // until all of it was received
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
//! What begins with `try_` does not wait, and what ends with `_timeout` waits for so long at most. A call that waits spins for up to 50 µs
//! by default and then blocks ([`Options::spin`]); both sides can also [wait](Consumer::prepare_wait) for several rings at once with
//! poll(2). Waiting ends when the peer is done, which is the end of the stream, and when it dies, which is
//! [`RecvError::PeerDied`] or [`SendError::PeerDied`]. With the feature `tokio` there are `AsyncProducer` and `AsyncConsumer`.
//!
//! The protocol is defined by docs/abi.md alone. A side belongs to the process that set it up. A child that was
//! forked later can drop its copy, which changes nothing, and must not use it.

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
pub use error::{RecvError, SendError, SetupError};
pub use options::Options;
pub use producer::{Producer, Reservation, WriteBatch};
pub use record::Bytes;
pub use sluice_ring::{InvalidCapacity, ProtocolViolation};
pub use socket::{Listener, Socket};
