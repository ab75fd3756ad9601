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
mod mapped;
mod object;
mod stored;
mod sync;
mod watch;

use std::path::Path;

use anyhow::Result;
use clap::Subcommand;
use sluice::{Kind, Name};

use crate::args::InfoArgs;
use crate::rm;

pub use get::NoSuchKey;
pub use stored::StoredOnly;

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

impl Verb {
    /// The map that the command uses, and the directory of its cgroup.
    fn map(&self) -> Option<(&Name, Option<&Path>)> {
        let map = match self {
            Self::Set(arguments) => &arguments.map,
            Self::Cas(arguments) => &arguments.map,
            Self::Watch(arguments) => &arguments.map,
            Self::Import(arguments) => &arguments.map,
            Self::Create(_) | Self::Ls(_) => return None,
            Self::Rm(arguments) => return Some(arguments.channel.place()),
            Self::Info(arguments) => return Some(arguments.channel.place()),
            Self::Get(arguments) => return Some(arguments.channel.place()),
            Self::Del(arguments) => return Some(arguments.channel.place()),
            Self::Sync(arguments) => return Some(arguments.channel.place()),
            Self::Export(arguments) => return Some(arguments.channel.place()),
        };
        Some((map.name(), map.directory()))
    }
}

pub fn run(verb: &Verb) -> Result<()> {
    execute(verb).map_err(|error| match verb.map() {
        Some((name, directory)) => stored::explain(error, name, directory),
        None => error,
    })
}

fn execute(verb: &Verb) -> Result<()> {
    match verb {
        Verb::Create(arguments) => create::run(arguments),
        Verb::Ls(arguments) => ls::run(arguments),
        Verb::Rm(arguments) => rm::run(arguments, Kind::Map),
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
