// SPDX-License-Identifier: MIT OR Apache-2.0
//! `sluice pipe …`

mod create;
mod info;
mod open;
mod recv;
mod send;

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Subcommand;
use sluice::Kind;

use crate::args::ChannelArgs;
use crate::ls;

#[derive(Subcommand)]
pub enum Verb {
    /// Send a file or standard input to a receiver
    Send(send::Arguments),
    /// Receive to a file or standard output, until the last sender has closed the pipe
    Recv(recv::Arguments),
    /// Create a persistent pipe, which exists until it is removed
    Create(create::Arguments),
    /// List the named pipes of a scope
    Ls(ls::Arguments),
    /// Remove the name of a pipe; processes that have it open can continue
    Rm(ChannelArgs),
    /// Show the state of a pipe
    Info(info::Arguments),
}

pub fn run(verb: &Verb) -> Result<()> {
    match verb {
        Verb::Send(arguments) => send::run(arguments),
        Verb::Recv(arguments) => recv::run(arguments),
        Verb::Create(arguments) => create::run(arguments),
        Verb::Ls(arguments) => ls::run_filtered(arguments, |channel| channel.kind == Kind::Pipe),
        Verb::Rm(channel) => Ok(channel.channel()?.unlink()?),
        Verb::Info(arguments) => info::run(arguments),
    }
}

/// The path in the argument FILE; none if it stands for a standard stream.
fn file_path(argument: &Option<PathBuf>) -> Option<&Path> {
    argument.as_deref().filter(|path| *path != Path::new("-"))
}
