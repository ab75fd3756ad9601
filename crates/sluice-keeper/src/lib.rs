// SPDX-License-Identifier: MIT OR Apache-2.0
//! The keeper of durable maps: the process of the host that stores their changes, and restores them. That is the daemon sluiced(8);
//! a program that uses maps does not need this library.
//!
//! A [`Keeper`] reads [messages](Message) of the module, and answers them by calls. Each durable map has a stream, whose number is in
//! its messages and in the calls. A stream can end at any time, because the process that opens the map gives up: a call then fails with
//! ENOENT.
//!
//! ```no_run
//! use sluice_keeper::{BUFFER, Content, Keeper};
//!
//! let keeper = Keeper::open()?;
//! let mut buffer = vec![0; BUFFER];
//! loop {
//!     for message in keeper.read(&mut buffer)? {
//!         let message = message?;
//!         match message.content {
//!             Content::Open(open) => {
//!                 // A new map, which may make 1000 changes before the next acknowledgement.
//!                 keeper.create(message.stream, &open.map, 0, 1000)?;
//!                 keeper.ready(message.stream)?;
//!             }
//!             Content::Set(set) => {
//!                 // … and store it, before:
//!                 keeper.acknowledge(message.stream, set.number, set.number + 1000)?;
//!             }
//!             _ => {}
//!         }
//!     }
//! }
//! # #[allow(unreachable_code)]
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod calls;
mod descriptor;
mod error;
mod map;
mod message;
mod restore;

pub use descriptor::Keeper;
pub use error::{CallError, OpenError, ReadError};
pub use map::{COMMIT_INTERVAL, StoredMap};
pub use message::{Content, Message, Messages, Open, Removal, Resume, Set};
pub use restore::Entry;

/// The room in bytes in which any message fits. A larger buffer receives more messages by one call.
pub const BUFFER: usize = (1 << 20) + (8 << 10);
