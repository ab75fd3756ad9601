// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures Sluice and other IPC mechanisms, and compares two results. `sluice bench` runs this program.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use sluice_bench::{compare, options::Options, run};

#[derive(Parser)]
#[command(
    name = "sluice-bench",
    about = "Measure Sluice and other IPC mechanisms in the same run",
    version,
    args_conflicts_with_subcommands = true
)]
struct CommandLine {
    #[command(subcommand)]
    command: Option<Command>,

    /// Without a subcommand, it measures.
    #[command(flatten)]
    run: Options,
}

#[derive(Subcommand)]
enum Command {
    Compare(compare::Options),
}

/// Exits with 1 after a failure or a slowdown, and with 2 when two results cannot be compared.
fn main() -> ExitCode {
    let line = CommandLine::parse();
    let (outcome, failure) = match &line.command {
        Some(Command::Compare(options)) => (compare::run(options), ExitCode::from(2)),
        None => (run::run(&line.run).map(|()| true), ExitCode::FAILURE),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("sluice-bench: {error:#}");
            failure
        }
    }
}
