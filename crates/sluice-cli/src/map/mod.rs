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
mod store;
mod sync;
mod watch;

use anyhow::Result;
use clap::Subcommand;

use crate::args::{ChannelArgs, InfoArgs};
use crate::rm;

pub use get::NoSuchKey;
pub use store::{DaemonError, failure_kind};

#[derive(Subcommand)]
pub enum Verb {
    /// Create a persistent map, which exists until it is removed
    Create(create::Arguments),
    /// List the maps of a scope, or the keys of a map
    Ls(ls::Arguments),
    /// Remove the name of a map; processes that have it open can continue, except with --destroy
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
    Del(change::DelArguments),
    /// Wait until the changes of a durable map are stored
    Sync(sync::Arguments),
    /// Print each change
    Watch(watch::Arguments),
    /// Print all entries as lines that import reads
    Export(export::Arguments),
    /// Set the entries of an export
    Import(import::Arguments),
    /// Restore a stored map into the kernel
    Attach(store::SelectionArgs),
    /// Drop the kernel's copy of a durable map, which stays stored
    Detach(store::SelectionArgs),
    /// List the stored maps of all cgroups
    Status(store::StatusArgs),
    /// Delete a stored map that is not attached
    Forget(store::ForgetArgs),
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
        Verb::Attach(arguments) => store::attach(arguments),
        Verb::Detach(arguments) => store::detach(arguments),
        Verb::Status(arguments) => store::status(arguments),
        Verb::Forget(arguments) => store::forget(arguments),
    }
}
