// SPDX-License-Identifier: MIT OR Apache-2.0
//! Malicious peers of a ring. They implement the protocol over a bare socket and bare memfds, and over bare ioctls of a device ring,
//! from docs/abi/ alone and without code of the library, and can write any value to their own memory.
//!
//! A malicious peer is set up before the library's side: over memfd it sends its hello and its reply, on a device ring it opens
//! its role. So setting up a ring needs no second thread, and the sequence of events in a test is deterministic.
//!
//! [`fuzz`] holds what the fuzz targets run, over memfd.

mod consumer;
mod endpoint;
pub mod fuzz;
mod handshake;
mod memory;
mod producer;
mod socket;

pub use consumer::MaliciousConsumer;
pub use endpoint::{Endpoint, Role, destroy, unused_name};
pub use handshake::{Hello, reply};
pub use memory::{Memory, SEALS, memfd, seal};
pub use producer::MaliciousProducer;
pub use socket::{Memfd, Peer};

/// Offsets in struct sluice_ring_ctrl, and its size.
pub const POS: usize = 0;
pub const WAIT_FLAGS: usize = 128;
pub const WAKE_SEQ: usize = 132;
pub const CLOSED: usize = 136;
pub const WAKE_ACK: usize = 140;
pub const FEATURES: usize = 144;
pub const CTRL_SIZE: usize = 256;

/// Offset of the data in a file of 4 KiB pages, and in a mapping of a device ring.
pub const DATA: usize = 4096;

/// Flag of a hello: the producer's file lacks F_SEAL_FUTURE_WRITE.
pub const UNSEALED: u32 = 0x02;

/// Size of a record's header.
pub const HEADER: u64 = 8;

/// The position after a record of `length` bytes at `position`.
pub fn next_pos(position: u64, length: u32) -> u64 {
    position + (HEADER + u64::from(length)).next_multiple_of(8)
}

/// The maximum length of a record.
pub fn max_record_len(capacity: usize) -> u32 {
    (capacity / 2) as u32 - 8
}
