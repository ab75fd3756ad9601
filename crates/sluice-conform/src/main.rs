// SPDX-License-Identifier: MIT OR Apache-2.0
//! sluice-conform: whether an implementation of channels behaves as others do. spec/conformance/ has the lists of behaviours.
//!
//! A peer is a program that has an endpoint: one side of a ring, a subscriber of a bus. It reads a command per line and prints a result per
//! line; docs/abi/conformance.md has both. `run` starts each pair of peers for each behaviour, gives them the commands, and compares what
//! they print. The Rust library is one of the peers, and so are a producer and a consumer that violate the protocol.

mod bad_peer;
mod bus;
mod content;
mod feed;
mod map;
mod peer;
mod pipe;
mod process;
mod report;
mod ring;
mod script;
mod store;
mod words;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Parser, Subcommand, ValueEnum};

use crate::script::Carrier;

#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run each pair of peers through the behaviours
    Run {
        /// A program as peer, with its arguments; beside the Rust library
        #[arg(long = "peer", value_name = "COMMAND")]
        peers: Vec<String>,
        /// What needs the kernel module: rings on the device, and the other kinds, instead of rings over memfd
        #[arg(long)]
        module: bool,
        /// With --module: durable maps, too, with this daemon, sluiced
        #[arg(long, value_name = "PROGRAM", requires = "module")]
        store: Option<PathBuf>,
        /// Each program as first one only with the next one that has the commands
        #[arg(long)]
        quick: bool,
        /// Only the behaviours whose names contain this text, or another one
        #[arg(long, value_name = "TEXT")]
        only: Vec<String>,
        /// How long a result may take, in seconds; more than any wait of a behaviour
        #[arg(long, value_name = "SECONDS", default_value = "60")]
        limit: u64,
    },
    /// Be a peer: the Rust library, commanded over standard input
    Peer {
        /// How a side of a ring spins before it blocks, instead of the default of the library
        #[arg(long)]
        spin: Option<Spin>,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Spin {
    Never,
    /// It never blocks
    Always,
}

impl Spin {
    fn limit(self) -> Duration {
        match self {
            Self::Never => Duration::ZERO,
            Self::Always => Duration::MAX,
        }
    }
}

fn main() -> Result<ExitCode> {
    match Arguments::parse().command {
        Command::Run {
            peers,
            module,
            store,
            quick,
            only,
            limit,
        } => report::run(&report::Run {
            peers: &peers,
            carrier: if module {
                Carrier::Module
            } else {
                Carrier::Memfd
            },
            store: store.as_deref(),
            quick,
            only: &only,
            limit: Duration::from_secs(limit),
        }),
        Command::Peer { spin } => {
            peer::serve(spin.map(Spin::limit))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}
