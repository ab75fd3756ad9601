// SPDX-License-Identifier: MIT OR Apache-2.0
//! `sluice pipe …`

mod create;
mod info;
mod open;
mod recv;
mod send;

use std::fs::File;
use std::os::fd::OwnedFd;

use anyhow::{Error, Result, anyhow};
use clap::Subcommand;
use sluice::Kind;
use sluice::pipe::Reader;

use crate::args::InfoArgs;
use crate::{ls, rm};

#[derive(Subcommand)]
pub enum Verb {
    /// Send a file or standard input to a receiver
    Send(send::Arguments),
    /// Receive to a file or standard output, until the last sender has closed the pipe
    Recv(recv::Arguments),
    /// Create a persistent pipe, which exists until it is removed
    Create(create::Arguments),
    /// List the named pipes of a scope
    #[command(alias = "list")]
    Ls(ls::Arguments),
    /// Remove the name of a pipe; processes that have it open can continue, except with --destroy
    #[command(aliases = ["remove", "delete"])]
    Rm(rm::Arguments),
    /// Show the state of a pipe
    Info(InfoArgs),
}

pub fn run(verb: &Verb) -> Result<()> {
    match verb {
        Verb::Send(arguments) => send::run(arguments),
        Verb::Recv(arguments) => recv::run(arguments),
        Verb::Create(arguments) => create::run(arguments),
        Verb::Ls(arguments) => ls::run_kind(arguments, Kind::Pipe),
        Verb::Rm(arguments) => rm::run(arguments, Kind::Pipe),
        Verb::Info(arguments) => info::run(arguments),
    }
}

/// Whether the pipe of this endpoint is destroyed: it then counts no endpoint.
fn is_destroyed(endpoint: File) -> bool {
    let endpoint = Reader::from(OwnedFd::from(endpoint));
    endpoint
        .info()
        .is_ok_and(|info| info.readers == 0 && info.writers == 0)
}

/// The error of a transfer through a destroyed pipe.
fn destroyed(copied: u64) -> Error {
    anyhow!(
        "the pipe was destroyed after {copied} bytes, some perhaps undelivered; create it and send again"
    )
}
