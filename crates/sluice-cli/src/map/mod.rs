// SPDX-License-Identifier: MIT OR Apache-2.0
//! `sluice map …`; its manual is docs/man/sluice-map.1.

mod args;
mod change;
mod create;
mod durable;
mod escape;
mod export;
mod get;
mod import;
mod info;
mod ls;
mod object;
mod sync;
mod watch;

use anyhow::Result;
use clap::Subcommand;

use crate::args::{ChannelArgs, InfoArgs};
use crate::rm;

pub use get::NoSuchKey;

#[derive(Subcommand)]
pub enum Verb {
    /// Create a persistent map, which exists until it is removed
    Create(create::Arguments),
    /// List the maps of a scope, or the keys of a map
    #[command(alias = "list")]
    Ls(ls::Arguments),
    /// Remove the name of a map; processes that have it open can continue, except with --destroy
    #[command(alias = "remove")]
    Rm(rm::Arguments),
    /// Show the state of a map
    Info(InfoArgs),
    /// Print the value of a key
    Get(get::Arguments),
    /// Set the value of a key
    Set(change::SetArguments),
    /// Set the value of a key if its entry has a version; 0: if there is none
    Cas(change::CasArguments),
    /// Delete a key
    #[command(alias = "delete")]
    Del(change::DelArguments),
    /// Wait until the changes of a durable map are stored
    Sync(sync::Arguments),
    /// Print each change
    Watch(watch::Arguments),
    /// Print all entries as lines that import reads
    Export(export::Arguments),
    /// Set the entries of an export
    Import(import::Arguments),
}

pub fn run(verb: &Verb) -> Result<()> {
    match verb {
        Verb::Create(arguments) => create::run(arguments),
        Verb::Ls(arguments) => ls::run(arguments),
        Verb::Rm(arguments) => rm::run(arguments, ChannelArgs::map),
        Verb::Info(arguments) => info::run(arguments),
        Verb::Get(arguments) => get::run(arguments),
        Verb::Set(arguments) => change::set(arguments),
        Verb::Cas(arguments) => change::cas(arguments),
        Verb::Del(arguments) => change::del(arguments),
        Verb::Sync(arguments) => sync::run(arguments),
        Verb::Watch(arguments) => watch::run(arguments),
        Verb::Export(arguments) => export::run(arguments),
        Verb::Import(arguments) => import::run(arguments),
    }
}
