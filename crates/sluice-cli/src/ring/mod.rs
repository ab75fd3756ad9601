// SPDX-License-Identifier: MIT OR Apache-2.0
//! `sluice ring …`

pub mod codec;
mod create;
mod handshakes;
mod info;
mod listen;
pub mod output;
mod recv;
mod send;
mod setup;
mod side;
mod socket;
mod stats;
pub mod wait;

use anyhow::Result;
use clap::Subcommand;
use sluice::Kind;

use crate::args::InfoArgs;
use crate::{ls, rm};

pub use listen::PathInUse;
pub use wait::WaitTimeout;

#[derive(Subcommand)]
pub enum Verb {
    /// Send each line of standard input as a record to a receiver
    Send(send::Arguments),
    /// Print each received record, until the sender has closed the ring
    Recv(recv::Arguments),
    /// Create a persistent ring, which exists until it is removed
    Create(create::Arguments),
    /// List the rings of a scope
    #[command(alias = "list")]
    Ls(ls::Arguments),
    /// Remove the name of a ring; processes that have it open can continue, except with --destroy
    #[command(aliases = ["remove", "delete"])]
    Rm(rm::Arguments),
    /// Show the state of a ring and of its two sides
    Info(InfoArgs),
}

pub fn run(verb: &Verb) -> Result<()> {
    match verb {
        Verb::Send(arguments) => send::run(arguments),
        Verb::Recv(arguments) => recv::run(arguments),
        Verb::Create(arguments) => create::run(arguments),
        Verb::Ls(arguments) => ls::run_kind(arguments, Kind::Ring),
        Verb::Rm(arguments) => rm::run(arguments, Kind::Ring),
        Verb::Info(arguments) => info::run(arguments),
    }
}
