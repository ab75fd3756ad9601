// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command `sluice`. Its manual is docs/man/sluice.1.

mod bench;
mod completion;
mod doctor;
mod exit;
mod ls;
mod output;
mod pipe;
mod place;
mod progress;
mod ring;
mod transfer;
mod waiting;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Move data between the processes of one cgroup, by name
#[derive(Parser)]
#[command(name = "sluice", version)]
struct Cli {
    #[command(subcommand)]
    noun: Noun,
}

#[derive(Subcommand)]
enum Noun {
    /// Send, receive, and manage pipes
    #[command(subcommand)]
    Pipe(pipe::Verb),
    /// Send and receive records through shared memory, without the module
    #[command(subcommand)]
    Ring(ring::Verb),
    /// List the channels of a scope, of all kinds
    Ls(ls::Arguments),
    /// Measure Sluice beside what people use today, or compare two measurements
    Bench(bench::Arguments),
    /// Check whether this system is set up for Sluice
    Doctor(doctor::Arguments),
    /// Print completions for a shell
    Completion(completion::Arguments),
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(code) => code,
        Err(error) if output::is_closed(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sluice: {}", in_full(&error));
            exit::status(&error)
        }
    }
}

/// With all causes, but for those that were named already.
fn in_full(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text += &format!(": {cause}");
        }
    }
    text
}

fn run(cli: &Cli) -> Result<ExitCode> {
    match &cli.noun {
        Noun::Pipe(verb) => pipe::run(verb)?,
        Noun::Ring(verb) => ring::run(verb)?,
        Noun::Ls(arguments) => ls::run(arguments)?,
        Noun::Bench(arguments) => bench::run(arguments)?,
        Noun::Doctor(arguments) => return doctor::run(arguments),
        Noun::Completion(arguments) => completion::run(arguments)?,
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use std::io;

    use clap::CommandFactory;

    use super::*;

    fn parses(line: &str) -> bool {
        Cli::try_parse_from(line.split_whitespace()).is_ok()
    }

    #[test]
    fn a_cause_is_named_once() {
        let refused = || io::Error::from(io::ErrorKind::PermissionDenied);
        let silent = anyhow::Error::new(refused()).context("cannot look");
        assert_eq!(in_full(&silent), "cannot look: permission denied");
        let source = refused();
        let path = "/a".into();
        let telling = anyhow::Error::new(sluice::ring::SetupError::Connect { path, source });
        assert_eq!(in_full(&telling).matches("permission denied").count(), 1);
    }

    #[test]
    fn the_options_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn what_makes_sense_is_understood() {
        for line in [
            "sluice pipe send",
            "sluice pipe recv frames out.bin",
            "sluice pipe send frames - --create --persist --mode 660 --size 1M",
            "sluice pipe create frames --scope /sys/fs/cgroup/a --json",
            "sluice pipe rm frames",
            "sluice pipe info frames --json",
            "sluice ring send /run/prices --capacity 16M --huge-pages --lock --node 0 --spin 0",
            "sluice ring send --listen prices --framing length --wait 5 --json",
            "sluice ring recv prices --connect --allow-user 1000 --allow-user 1001",
            "sluice ring recv prices --allow-everyone --max-capacity 64K",
            "sluice ls --json",
            "sluice bench --quick --suite rtt",
            "sluice bench compare a.json b.json",
            "sluice bench --help",
            "sluice doctor",
            "sluice completion bash",
        ] {
            assert!(parses(line), "{line}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for line in [
            "sluice",
            "sluice pipe info",
            "sluice pipe send --create",
            "sluice pipe send --scope /sys/fs/cgroup/a",
            "sluice pipe send frames --persist",
            "sluice pipe send frames --mode 600",
            "sluice pipe create frames --mode 1777",
            "sluice pipe create frames --mode rw",
            "sluice pipe create frames --size 0",
            "sluice pipe create a/b",
            "sluice ring",
            "sluice ring send",
            "sluice ring send prices --listen --connect",
            "sluice ring send prices --capacity 0",
            "sluice ring send prices --framing words",
            "sluice ring recv prices --capacity 1M",
            "sluice ring recv prices --huge-pages",
            "sluice ring recv prices --wait -1",
            "sluice ring recv prices --allow-user 0 --allow-everyone",
        ] {
            assert!(!parses(line), "{line}");
        }
    }
}
