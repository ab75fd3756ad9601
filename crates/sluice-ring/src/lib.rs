// SPDX-License-Identifier: MIT OR Apache-2.0
//! The algorithm of a ring, as include/uapi/linux/sluice.h lays it down: who may write when, what each side believes of the
//! other, and how one sleeps without missing the other's call. What carries it, which is memory and a way to sleep, comes
//! from outside, as a [`Memory`] and a [`Bed`].
//!
//! # The life of a record
//! ```text
//!            released                    published   written      cleared
//!               |                            |          |            |
//!  -------------+----------------------------+----------+------------+----------- position
//!   free again  | the consumer's: records it | a batch  | every word | whatever was
//!               | holds, or did not see yet  |          | is zero    | there last time
//! ```
//! [`Producer::write`] puts a record's header before its bytes, [`Producer::publish`] lets the consumer see all that was
//! written, [`Consumer::peek`] finds it, [`Consumer::take`] steps over it and [`Consumer::release`] gives the memory back.
//!
//! # What keeps an old byte from looking like a header
//! The consumer looks at the state at its own position and at nothing else, so what counts is that this one word is zero until
//! a record is there. It was cleared before the record in front of it was published, and the release of that publication and the
//! acquire of the consumer's look make that order theirs too: whoever stands at a position has acquired the record before
//! it, and thereby the zero, and can read only that or what was stored after it, which is the state of the next record.
//! The very first positions are zero because all of the memory begins so.
//!
//! The clearing must not be in the way: the consumer has read that line in the round before, and a store to it waits until the
//! line has come over, and with it every later store, the publication too. So the producer clears a window ahead of what it
//! writes right *after* it has published, while the record is on its way. Then the line is its own when the next record
//! comes. Only where a record is longer than the window does it clear the one word before it publishes.
//!
//! A batch is published by one store: the state of its first record is set last, and until then the consumer stands in front of
//! it, whatever the states behind it say.
//!
//! # Keeping a distance
//! Two who work on the same line pass it back and forth for each record. So a side that has caught up with the other
//! after a row of records pauses before it looks again (`Pace` in pace.rs), for longer as long as that pays, and lets
//! the other get some lines ahead. A record that comes by itself is never paused for.

mod bed;
mod consumer;
mod geometry;
mod lie;
mod memory;
mod pace;
mod producer;
mod rest;
mod spin;
pub mod sync;

pub use bed::Bed;
pub use consumer::Consumer;
pub use geometry::{Capacity, HEADER, WrongCapacity, step};
pub use lie::Lie;
pub use memory::{Memory, Side};
pub use pace::Pace;
pub use producer::Producer;
pub use rest::{Call, How, Rest};
pub use spin::Spin;
