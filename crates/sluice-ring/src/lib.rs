// SPDX-License-Identifier: MIT OR Apache-2.0
//! The algorithm of a ring, which docs/abi/ring.md defines: the memory that each side may write, the validation of the peer's
//! values, and sleep without lost wake-ups. The caller provides the memory and the system calls, as a [`Memory`] and a
//! [`Waker`].
//!
//! # Lifetime of a record
//! ```text
//!            released                    published   written      zeroed
//!               |                            |          |            |
//!  -------------+----------------------------+----------+------------+----------- position
//!   free        | the consumer's: received,  | a batch  | every word | content of
//!               | or not received yet        |          | is zero    | the last lap
//! ```
//! [`Producer::write`] stores a record's header before its bytes, [`Producer::publish`] makes all written records visible to
//! the consumer, [`Consumer::peek`] finds the next one, [`Consumer::advance`] steps over it and [`Consumer::release`]
//! releases the memory.
//!
//! # Why stale bytes are never taken for a header
//! The consumer only loads the state at its own position, so this one word must be zero until a record is there. The
//! producer zeroes it before it publishes the preceding record. The release of that publication and the acquire of the
//! consumer order the two stores for the consumer, too: a consumer at a position has acquired the preceding record and
//! thereby the zero, and can load only that zero or a later store, which is the state of the next record. The first
//! positions are zero because all of the memory is zero initially.
//!
//! Zeroing must not delay a publication: the consumer has read that line in the previous lap, so a store to it waits for the
//! transfer of the line, and with it every later store. The producer therefore zeroes a window ahead of its position
//! directly *after* a publication, while the record is in transit, and owns the line before the next record. After a single
//! record longer than the window, which others of its kind presumably follow, it zeroes only the one word before the next publication.
//!
//! A batch is published by one store: the state of its first record is stored last. Until then the consumer stays at that
//! record, whatever the states after it.
//!
//! # Pauses in a stream
//! Two sides that access the same line transfer it for each record. A side that has caught up with the peer in a stream pauses
//! before the next poll if that was measured to make the stream faster ([`Backoff`]), longer as the stream continues, so that the
//! peer gets some lines ahead. Other than for a rare trial, there is no pause for a record that does not follow a stream.

// Positions of the peer are loaded as a whole from memory that may be mapped read-only. Rust defines such loads up to the
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
pub use layout::{Capacity, HEADER, InvalidCapacity, LINE, record_stride};
pub use memory::{Ctrl, End, Memory};
pub use parking::{Notifier, Parker, WakeMethod};
pub use peer::{PeerState, peer_state, stored_peer_state};
pub use producer::Producer;
pub use spin::AdaptiveSpin;
pub use violation::ProtocolViolation;
pub use waker::Waker;
