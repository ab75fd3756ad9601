// SPDX-License-Identifier: MIT OR Apache-2.0
//! sluice-conform: whether an implementation of a ring behaves as others do. spec/conformance/ring.txt is the list of behaviours.
//!
//! A peer is a program that has one side of a ring over memfd. It reads a command per line and prints a result per line;
//! docs/abi/conformance.md has both. `run` starts each pair of peers for each behaviour, gives them the commands, and compares what they
//! print. The Rust library is one of the peers, and so are a producer and a consumer that violate the protocol.

mod bad_peer;
mod content;
mod peer;
mod process;
mod report;
mod script;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run each pair of peers through all behaviours, or those whose names contain a text
    Run {
        /// A program as peer, with its arguments; beside the Rust library
        #[arg(long = "peer", value_name = "COMMAND")]
        peers: Vec<String>,
        #[arg(long, value_name = "TEXT", default_value = "")]
        only: String,
        /// How long a result may take, in seconds; more than any wait of a behaviour
        #[arg(long, value_name = "SECONDS", default_value = "60")]
        limit: u64,
    },
    /// Be a peer: the Rust library, commanded over standard input
    Peer,
}

fn main() -> Result<ExitCode> {
    match Arguments::parse().command {
        Command::Run { peers, only, limit } => {
            report::run(&peers, &only, Duration::from_secs(limit))
        }
        Command::Peer => {
            peer::serve()?;
            Ok(ExitCode::SUCCESS)
        }
    }
}
