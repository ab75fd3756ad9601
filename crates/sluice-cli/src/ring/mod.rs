// SPDX-License-Identifier: MIT OR Apache-2.0
//! `sluice ring …`

pub mod codec;
mod connect;
mod handshakes;
mod listen;
pub mod output;
mod recv;
mod send;
mod stats;

use anyhow::Result;
use clap::Subcommand;

pub use connect::WaitTimeout;
pub use listen::PathInUse;

#[derive(Subcommand)]
pub enum Verb {
    /// Send each line of standard input as a record to a receiver
    Send(send::Arguments),
    /// Print each received record, until the sender has closed the ring
    Recv(recv::Arguments),
}

pub fn run(verb: &Verb) -> Result<()> {
    match verb {
        Verb::Send(arguments) => send::run(arguments),
        Verb::Recv(arguments) => recv::run(arguments),
    }
}
