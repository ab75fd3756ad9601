// SPDX-License-Identifier: MIT OR Apache-2.0
//! `sluice feed …`; its manual is docs/man/sluice-feed.1.

mod cycles;
mod histogram;
mod info;
mod receive;
mod recv;
mod report;
mod run;
mod signals;

use anyhow::Result;
use clap::{Args, Subcommand};
use sluice::feed::Simulator;
use sluice::{Feed, Name};

use crate::{args, ls};

#[derive(Subcommand)]
pub enum Verb {
    /// Start the packet simulator, and show how long its packets take to this process
    Run(run::Arguments),
    /// List the named feeds
    #[command(alias = "list")]
    Ls(ListArguments),
    /// Show the state of a feed
    Info(info::Arguments),
    /// Print each received packet, until the feed ends
    Recv(recv::Arguments),
}

#[derive(Args)]
pub struct ListArguments {
    #[command(flatten)]
    format: ls::Format,
}

#[derive(Args)]
struct FeedArgs {
    /// The name of the feed [default: that of the packet simulator]
    #[arg(value_parser = args::name())]
    name: Option<Name>,
}

impl FeedArgs {
    fn open(&self) -> sluice::Result<Feed> {
        match &self.name {
            Some(name) => Feed::named(name).open(),
            None => Ok(Simulator::open()?.into()),
        }
    }
}

pub fn run(verb: &Verb) -> Result<()> {
    match verb {
        Verb::Run(arguments) => run::run(arguments),
        Verb::Ls(arguments) => ls::run_feeds(&arguments.format),
        Verb::Info(arguments) => info::run(arguments),
        Verb::Recv(arguments) => recv::run(arguments),
    }
}
