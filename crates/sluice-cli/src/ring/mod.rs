// SPDX-License-Identifier: MIT OR Apache-2.0
//! `sluice ring …`

mod connect;
mod cutter;
mod framing;
mod handshakes;
mod listen;
mod recv;
mod send;
mod sheet;
mod tally;

use anyhow::Result;
use clap::Subcommand;

pub use connect::Absent;
pub use listen::Taken;

#[derive(Subcommand)]
pub enum Verb {
    /// Send each line of standard input as a record, to whoever receives
    Send(send::Arguments),
    /// Print each record that is received, until the sender is done
    Recv(recv::Arguments),
}

pub fn run(verb: &Verb) -> Result<()> {
    match verb {
        Verb::Send(arguments) => send::run(arguments),
        Verb::Recv(arguments) => recv::run(arguments),
    }
}
