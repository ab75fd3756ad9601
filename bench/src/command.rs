// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line: measure, or compare two results.

use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::{compare, run};

#[derive(Args)]
#[group(skip)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Options {
    #[command(subcommand)]
    command: Option<Command>,

    /// The options of run, when there is no subcommand.
    #[command(flatten)]
    run: run::Options,
}

#[derive(Subcommand)]
enum Command {
    /// Measure (the default)
    Run(Box<run::Options>),
    Compare(compare::Options),
}

impl Options {
    /// Exits with 1 after a failure or a slowdown, and with 2 when two results cannot be compared.
    pub fn run(&self, program: &str) -> ExitCode {
        let (outcome, failure) = match &self.command {
            Some(Command::Compare(options)) => (compare::run(options), ExitCode::from(2)),
            Some(Command::Run(options)) => (run::run(options).map(|()| true), ExitCode::FAILURE),
            None => (run::run(&self.run).map(|()| true), ExitCode::FAILURE),
        };
        match outcome {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(error) => {
                eprintln!("{program}: {error:#}");
                failure
            }
        }
    }
}
