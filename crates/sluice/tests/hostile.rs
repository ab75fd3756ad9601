// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rings whose other end means harm: a peer written from docs/abi.md alone (crates/sluice-hostile) that lies wherever it can. What is
//! shown each time is that the honest side gets an error that names what happened, or what it was promised, and nothing else.

#[path = "hostile/support.rs"]
mod support;

#[path = "hostile/consumers.rs"]
mod consumers;
#[path = "hostile/files.rs"]
mod files;
#[path = "hostile/greetings.rs"]
mod greetings;
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
