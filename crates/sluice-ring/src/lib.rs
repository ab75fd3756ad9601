// SPDX-License-Identifier: MIT OR Apache-2.0
//! The algorithm of a ring, as docs/abi.md lays it down: who may write when, what each side checks of the other, and how one sleeps
//! without missing a wake-up. The memory and the system calls come from outside, as a [`Memory`] and a [`Waker`].
//!
//! # The life of a record
//! ```text
//!            released                    published   written      zeroed
//!               |                            |          |            |
//!  -------------+----------------------------+----------+------------+----------- position
//!   free again  | the consumer's: records it | a batch  | every word | whatever was
//!               | holds, or did not see yet  |          | is zero    | there last time
//! ```
//! [`Producer::write`] puts a record's header before its bytes, [`Producer::publish`] lets the consumer see all that was
//! written, [`Consumer::peek`] finds it, [`Consumer::advance`] steps over it and [`Consumer::release`] gives the memory back.
//!
//! # What keeps an old byte from looking like a header
//! The consumer looks at the state at its own position and at nothing else, so this one word has to be zero until a record is there. It
//! is zeroed before the record in front of it is published, and the release of that publication and the
//! acquire of the consumer's look make that order the consumer's too: whoever stands at a position has acquired the record before
//! it, and thereby the zero, and can read only that or what was stored after it, which is the state of the next record.
//! The very first positions are zero because all of the memory begins so.
//!
//! Zeroing must not delay a publication: the consumer has read that line in the round before, and a store to it waits until the
//! line has come over, and with it every later store. So the producer zeroes a window ahead of what it
//! writes right *after* it has published, while the record is on its way. Then the line is its own when the next record
//! comes. Only where a record is longer than the window does it zero the one word before it publishes.
//!
//! A batch is published by one store: the state of its first record is set last, and until then the consumer stands in front of
//! it, whatever the states behind it say.
//!
//! # Keeping a distance
//! Two sides that work on the same line pass it back and forth for each record. Where throughput counts for more than latency, a side
//! that has caught up with the other after a stream of records pauses before it looks again ([`Backoff`]), for longer as long as
//! that pays, and lets the other get some lines ahead. A record that does not follow a stream is never paused for.

// Positions of the peer are loaded as a whole through memory that may be mapped for reading only, which Rust defines up to the
// size of a pointer.
#[cfg(not(target_pointer_width = "64"))]
compile_error!("rings need a 64-bit target");

mod backoff;
mod consumer;
mod layout;
mod memory;
mod parking;
mod peer;
mod producer;
mod spin;
pub mod sync;
mod violation;
mod waker;

pub use backoff::Backoff;
pub use consumer::Consumer;
pub use layout::{Capacity, HEADER, InvalidCapacity, record_stride};
pub use memory::{Ctrl, Memory};
pub use parking::{Notifier, Parker, WakeMethod};
pub use peer::{PeerState, peer_state};
pub use producer::Producer;
pub use spin::AdaptiveSpin;
pub use violation::ProtocolViolation;
pub use waker::Waker;
