// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buses: messages from many senders to many subscribers, through the module.
//!
//! The subscriber, which receives what is sent from its open on:
//!
//! ```no_run
//! let mut subscriber = sluice::Bus::named("prices").create(true).subscriber()?;
//! loop {
//!     let message = subscriber.recv()?;
//!     println!("{} of {}, {} lost: {:?}", message.sequence, message.sender, message.lost, message.bytes());
//! }
//! # #[allow(unreachable_code)]
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The sender:
//!
//! ```no_run
//! let sender = sluice::Bus::named("prices").create(true).sender()?;
//! sender.send(b"17.5")?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A bus is opened as a [`Sender`], as a [`Subscriber`], or as [both](Options::endpoint). Its [`Mode`] tells who receives a message: all
//! subscribers, one of them in turn, or the first that asks.
//!
//! # Subscribers that do not keep up
//!
//! The [`Policy`] of a subscriber decides: it loses its oldest messages and learns their number ([`Header::lost`]), senders wait for
//! it, or it is evicted. The bus permits policies when it is created ([`Options::policies`]).
//!
//! # Requests and replies
//!
//! A [`Server`] answers the requests of [`Client`]s, each of which goes to one server in turn. A client learns at once when the server that
//! it asked has ended.
//!
//! ```no_run
//! let mut server = sluice::Bus::named("sums").create(true).server()?;
//! server.serve(|request| format!("{} bytes", request.len))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ```no_run
//! use std::time::Duration;
//!
//! let mut client = sluice::Bus::named("sums").client()?;
//! let reply = client.call_timeout(b"request", Duration::from_secs(1))?;
//! println!("{:?}", reply.bytes());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! On a broadcast bus a message can be answered, too: an endpoint that [sends and receives](Options::endpoint) has one id for both, to
//! which [`Sender::send_to`] sends.
//!
//! # Values
//!
//! With the feature `serde`, a [`Typed`](crate::Typed) sender or subscriber sends or receives values of a type instead of bytes.
//! [`Message::read_at`] copies a plain value (an integer, or a structure of them that implements the traits of bytemuck) from any offset.
//!
//! # Memory
//!
//! A [`MappedSubscriber`] receives messages in place, without a copy, and releases each when it is dropped. The bus has to be created
//! [mappable](Options::mappable) for it.

mod calls;
mod endpoint;
mod error;
mod info;
mod mapped;
mod message;
mod options;
mod policy;
mod requests;
mod send_batch;
mod sender;
mod subscriber;
#[cfg(feature = "tokio")]
mod tokio;
#[cfg(feature = "serde")]
mod typed;

#[cfg(feature = "tokio")]
pub use self::tokio::{AsyncMappedSubscriber, AsyncSender, AsyncSubscriber};
pub use error::{OpenError, RecvError, SendError};
pub use info::{BusInfo, EndpointInfo, SubscriberInfo};
pub use mapped::{MappedMessage, MappedSubscriber};
pub use message::{Batch, Header, Message};
pub use options::{Bus, Options};
pub use policy::{Mode, Policies, Policy};
#[cfg(feature = "tokio")]
pub use requests::{AsyncClient, AsyncRequest, AsyncServer};
pub use requests::{CallError, Client, Request, ServeError, Server};
pub use send_batch::SendBatch;
pub use sender::Sender;
pub use subscriber::Subscriber;
#[cfg(feature = "serde")]
pub use typed::TypedMessage;
