// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rings: records from one process to another through shared memory, without system calls while neither side waits.
//!
//! The producer of a ring in the module:
//!
//! ```no_run
//! let mut producer = sluice::Ring::named("prices").create(true).producer()?; // does not wait for the consumer
//! producer.send(b"4711 99.50")?;
//! producer.flush()?; // until the consumer has released all records
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A ring that nobody has open is freed with its records, unless it is [persistent](crate::Options::persistent).
//!
//! The consumer:
//!
//! ```no_run
//! let mut consumer = sluice::Ring::named("prices").create(true).consumer()?;
//! while let Some(record) = consumer.recv()? {
//!     println!("{:?}", record.to_vec()); // released when it is dropped
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A ring has a [`Producer`] and a [`Consumer`]. There are two ways to set it up:
//!
//! | | in a channel of the module | over a Unix socket, in two memfds |
//! |---|---|---|
//! | needs | the module, and a [name](Ring::named) or an [endpoint](Ring::attach) | a connection ([`Listener`], [`Socket`]) |
//! | set up by | [`crate::Options`] of a [`Ring`]: each side independently | [`SocketOptions`]: both sides together |
//! | access | the permissions and the scope of the channel | the user of the peer |
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
//! use sluice::ring::{Listener, SocketOptions};
//!
//! let listener = Listener::bind("/run/user/1000/prices")?;
//! let mut producer = SocketOptions::new().producer(listener.accept()?)?;
//! producer.send(b"4711 99.50")?;
//!
//! let mut room = producer.reserve(64)?; // or in place
//! room[..4].copy_from_slice(b"4712");
//! room.commit_len(4);
//! producer.flush()?; // until all records are released
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! The other side, over a socket:
//!
//! ```no_run
//! use sluice::ring::{Socket, SocketOptions};
//!
//! let socket = Socket::connect("/run/user/1000/prices")?;
//! let mut consumer = SocketOptions::new().consumer(socket)?;
//! while let Some(record) = consumer.recv()? {
//!     let number: Option<[u8; 4]> = record.read_at(0); // in place
//!     println!("{number:?} in {:?}", record.to_vec());
//! }
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! | | sends | receives |
//! |---|---|---|
//! | copying | [`send`](Producer::send) | [`recv_into`](Consumer::recv_into) |
//! | in place | [`reserve`](Producer::reserve) | [`recv`](Consumer::recv) |
//! | several at once | [`send_batch`](Producer::send_batch) | [`recv_batch`](Consumer::recv_batch) |
//!
//! A record can hold plain values (integers, or structures of them that implement the traits of bytemuck): [`Reservation::write_at`] writes
//! one in place, and [`Bytes::read_at`](crate::Bytes::read_at) reads it. With the feature `serde`, a [`Typed`](crate::Typed) producer or
//! consumer sends or receives values of any type that implements the traits of serde.
//!
//! Calls that start with `try_` do not wait, and those that end with `_timeout` wait for a limited time. A call that waits spins for up
//! to 100 µs by default, then blocks ([`SocketOptions::spin_limit`]); both sides can also [wait](Consumer::prepare_wait) for several rings with
//! poll(2). A wait ends when the peer closes the ring (end of stream), when it dies ([`RecvError::PeerDied`],
//! [`SendError::PeerDied`]), and when the channel is destroyed ([`RecvError::Destroyed`], [`SendError::Destroyed`]). With the feature
//! `tokio` there are `AsyncListener`, `AsyncProducer` and `AsyncConsumer`.
//!
//! docs/abi/ring.md defines the protocol. A side belongs to the process that set it up: in a forked child the calls that send, receive
//! or wait fail with [`SendError::Forked`] or [`RecvError::Forked`], and dropping what the child inherited has no effect.

mod bypass;
mod carrier;
mod connection;
mod consumer;
mod copy;
mod device;
mod error;
mod inline;
mod membarrier;
mod memfd;
mod options;
mod producer;
mod role;
#[cfg(feature = "tokio")]
mod tokio;
#[cfg(feature = "serde")]
mod typed;

#[cfg(feature = "tokio")]
pub use self::tokio::{AsyncConsumer, AsyncListener, AsyncProducer, AsyncWriteBatch};
pub use consumer::{Consumer, ReadBatch, Record};
pub use device::{Attach, Ring, RingInfo, RoleState};
pub use error::{RecvError, SendError, SetupError};
#[doc(hidden)]
pub use inline::InlineAddresses;
pub use memfd::{Listener, Socket};
pub use options::SocketOptions;
pub use producer::{Producer, Reservation, WriteBatch};
pub use sluice_ring::{InvalidCapacity, ProtocolViolation};
