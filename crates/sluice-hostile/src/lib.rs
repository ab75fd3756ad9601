// SPDX-License-Identifier: MIT OR Apache-2.0
//! The other end of a ring, as somebody writes it who means harm. It speaks the protocol over a bare socket with bare memfds, from
//! docs/abi.md alone and without any code of the library, and then writes into its own memory whatever it likes.
//!
//! It says everything beforehand: a greeting and a verdict lie in the socket when the honest side begins, so that no thread is
//! needed to set up a ring, and what happens in a test happens in its order.
//!
//! [`fuzz`] has what the fuzz targets do with their input.

mod consumer;
pub mod fuzz;
mod greeting;
mod memory;
mod producer;
mod socket;

pub use consumer::LyingConsumer;
pub use greeting::{Hello, verdict};
pub use memory::{Memory, SEALS, memfd, seal};
pub use producer::LyingProducer;
pub use socket::Peer;

/// Where things are in the memory of a side, and how long that is.
pub const POSITION: usize = 0;
pub const WAITING: usize = 128;
pub const BELL: usize = 132;
pub const CLOSED: usize = 136;
pub const SIDE: usize = 256;

/// Where the data begins in a file of normal pages.
pub const DATA: usize = 4096;

/// In the flags of a greeting: the producer's file is not sealed against writing.
pub const UNSEALED: u32 = 0x02;

/// Before each record.
pub const HEADER: u64 = 8;

/// Where the record begins that follows one of so many bytes at a position.
pub fn behind(position: u64, length: u32) -> u64 {
    position + (HEADER + u64::from(length)).next_multiple_of(8)
}

/// The bytes of the longest record.
pub fn longest(capacity: usize) -> u32 {
    (capacity / 2) as u32 - 8
}
