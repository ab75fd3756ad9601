// SPDX-License-Identifier: MIT OR Apache-2.0
//! `sluice pipe …`

mod manage;
mod recv;
mod send;
mod side;

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Subcommand;
use sluice::Kind;

use crate::ls;
use crate::place::Named;

#[derive(Subcommand)]
pub enum Verb {
    /// Send a file, or standard input, to whoever receives
    Send(send::Arguments),
    /// Receive into a file, or to standard output, until the last sender has left
    Recv(recv::Arguments),
    /// Make a pipe that stays until it is removed
    Create(manage::Create),
    /// List the named pipes of a scope
    Ls(ls::Arguments),
    /// Take a pipe's name away
    Rm(Named),
    /// Show the state of a pipe
    Info(manage::Info),
}

pub fn run(verb: &Verb) -> Result<()> {
    match verb {
        Verb::Send(arguments) => send::run(arguments),
        Verb::Recv(arguments) => recv::run(arguments),
        Verb::Create(arguments) => manage::create(arguments),
        Verb::Ls(arguments) => ls::show(arguments, |channel| channel.kind == Kind::Pipe),
        Verb::Rm(named) => Ok(named.channel()?.unlink()?),
        Verb::Info(arguments) => manage::info(arguments),
    }
}

/// What was given as FILE, unless that means a standard stream.
fn file_of(argument: &Option<PathBuf>) -> Option<&Path> {
    argument.as_deref().filter(|path| *path != Path::new("-"))
}
