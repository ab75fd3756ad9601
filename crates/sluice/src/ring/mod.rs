// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rings: records from one process to another through shared memory, without system calls while neither side waits.
//!
//! A ring has a [`Producer`] and a [`Consumer`]. There are two ways to set it up, by the [`Options`] of each side:
//!
//! | | over a Unix socket, in two memfds | in a channel of the module |
//! |---|---|---|
//! | needs | a connection ([`Listener`], [`Socket`]) | the module, and the name of a [`Channel`](crate::Channel::ring) or an endpoint |
//! | set up by | [`producer`](Options::producer), [`consumer`](Options::consumer): together | [`open_producer`](Options::open_producer), [`open_consumer`](Options::open_consumer): independently |
//! | access | the user of the peer | the mode and the scope of the channel |
//!
//! Each side can write only to its own memory, and reads each value of the other side once and validates it: a malicious peer
//! can cause a [`ProtocolViolation`] and nothing else.
//!
//! A record has a header of 8 bytes. Records of 56, 120 or any other 64 n − 8 bytes share no cache line with each other and are
//! the fastest for their size.
//!
//! One side, over a socket:
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
//! In a channel, in which records wait until the consumer comes:
//!
//! ```no_run
//! use sluice::Channel;
//! use sluice::ring::Options;
//!
//! let channel = Channel::ring("prices")?;
//! let mut producer = Options::new().open_producer(&channel.options().create(true).mode(0o660))?;
//! producer.send(b"4711 99.50")?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
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
//! poll(2). A wait ends when the peer closes the ring (end of stream), when it dies ([`RecvError::PeerDied`],
//! [`SendError::PeerDied`]), and when the channel is destroyed ([`RecvError::Destroyed`], [`SendError::Destroyed`]). With the feature `tokio` there are `AsyncProducer` and `AsyncConsumer`.
//!
//! docs/abi/ring.md defines the protocol. A side belongs to the process that set it up: a forked child must not use its copy, and
//! dropping the copy has no effect.

mod atomic_copy;
mod bypass;
pub(crate) mod carrier;
pub(crate) mod connection;
mod consumer;
mod copy;
pub(crate) mod device;
mod error;
pub(crate) mod mapping;
mod membarrier;
mod memfd;
pub(crate) mod options;
mod producer;
mod record;
pub(crate) mod region;
mod role;
#[cfg(feature = "tokio")]
mod tokio;

#[cfg(feature = "tokio")]
pub use self::tokio::{AsyncConsumer, AsyncListener, AsyncProducer, AsyncWriteBatch};
pub use consumer::{Consumer, ReadBatch, Record};
pub use device::{RingInfo, RoleState};
pub use error::{RecvError, SendError, SetupError, SystemError};
pub use memfd::{Listener, Socket};
pub use options::Options;
pub use producer::{Producer, Reservation, WriteBatch};
pub use record::Bytes;
pub use sluice_ring::{InvalidCapacity, ProtocolViolation};
