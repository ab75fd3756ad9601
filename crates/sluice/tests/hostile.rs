// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rings with a malicious peer, which is written from docs/abi.md alone (crates/sluice-hostile). The tests show that each call of the
//! library returns a documented result or an error that identifies the violation.

#[path = "hostile/support.rs"]
mod support;

#[path = "hostile/consumers.rs"]
mod consumers;
#[path = "hostile/files.rs"]
mod files;
#[path = "hostile/handshakes.rs"]
mod handshakes;
#[path = "hostile/hang_ups.rs"]
mod hang_ups;
#[path = "hostile/producers.rs"]
mod producers;
#[path = "hostile/races.rs"]
mod races;
#[path = "hostile/seals.rs"]
mod seals;
#[path = "hostile/sockets.rs"]
mod sockets;
