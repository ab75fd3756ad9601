// SPDX-License-Identifier: MIT OR Apache-2.0
//! The socket of sluiced: a request is a line of JSON, and so is the response to it. sluiced(8) describes both.
//!
//! A crate of its own, so that the command `sluice` does not contain the database of the daemon.

mod bytes;
mod client;
mod messages;

pub use bytes::Bytes;
pub use client::{SILENCE, call, call_within};
pub use messages::{
    Failure, FailureKind, MapName, MapState, MapStatus, Outcome, Request, Response, Selection,
    Status, SyncMode,
};

/// Where the daemon listens by default.
pub const SOCKET: &str = "/run/sluice/sluiced.sock";
/// Bytes of a request with its newline. A path of the kernel has 4096 bytes, each of which takes up to 4 in JSON.
pub const REQUEST_MAX: usize = 32 << 10;
