// SPDX-License-Identifier: MIT OR Apache-2.0
//! `sluice bus …`; its manual is docs/man/sluice-bus.1.

mod args;
mod create;
mod info;
mod output;
mod publish;
mod reply;
mod request;
mod subscribe;
mod summary;
mod wait;

use anyhow::Result;
use clap::Subcommand;
use sluice::Kind;

use crate::{ls, rm};

#[derive(Subcommand)]
pub enum Verb {
    /// Create a persistent bus, which exists until it is removed
    Create(create::Arguments),
    /// List the buses of a scope
    #[command(alias = "list")]
    Ls(ls::Arguments),
    /// Remove the name of a bus; processes that have it open can continue, except with --destroy
    #[command(aliases = ["remove", "delete"])]
    Rm(rm::Arguments),
    /// Show the state of a bus
    Info(info::Arguments),
    /// Send a message, or each line of standard input as one
    Pub(publish::Arguments),
    /// Print each received message
    Sub(subscribe::Arguments),
    /// Send a request to the next server, and print its reply
    Request(request::Arguments),
    /// Answer each request with the output of a command
    Reply(reply::Arguments),
}

pub fn run(verb: &Verb) -> Result<()> {
    match verb {
        Verb::Create(arguments) => create::run(arguments),
        Verb::Ls(arguments) => info::list(arguments),
        Verb::Rm(arguments) => rm::run(arguments, Kind::Bus),
        Verb::Info(arguments) => info::run(arguments),
        Verb::Pub(arguments) => publish::run(arguments),
        Verb::Sub(arguments) => subscribe::run(arguments),
        Verb::Request(arguments) => request::run(arguments),
        Verb::Reply(arguments) => reply::run(arguments),
    }
}
