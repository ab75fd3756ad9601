// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that durable maps keep what was acknowledged: after power cuts, on failing disks, and when processes are killed. The scripts in
//! tests/crash/ run it.
//!
//! `write` changes a map and records the answers, `churn` creates and removes one. `replay` makes, from a log of everything that was written to a disk, the states in
//! which a power cut may leave the disk, and compares the store in each with the record. `check` compares a store that outlasted
//! something else.

mod check;
mod churn;
mod disk;
mod history;
mod log;
mod loop_mount;
mod mark;
mod model;
mod recovery;
mod replay;
mod scratch;
mod states;
mod store;
mod target;
mod workload;
mod write;

use std::process::ExitCode;

use clap::Parser;

/// Tests of durable maps after crashes.
#[derive(Parser)]
#[command(name = "sluice-crash", version)]
enum Verb {
    Write(write::Write),
    Churn(churn::Churn),
    Replay(replay::Replay),
    Check(check::Check),
}

/// What was found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Right,
    /// A map is not as it has to be.
    Wrong,
}

/// The exit status is 1 if a map is wrong, 2 if that could not be found out.
fn main() -> ExitCode {
    let verdict = match Verb::parse() {
        Verb::Write(write) => write.run(),
        Verb::Churn(churn) => churn.run(),
        Verb::Replay(replay) => replay.run(),
        Verb::Check(check) => check.run(),
    };
    match verdict {
        Ok(Verdict::Right) => ExitCode::SUCCESS,
        Ok(Verdict::Wrong) => ExitCode::from(1),
        Err(error) => {
            eprintln!("sluice-crash: {error:#}");
            ExitCode::from(2)
        }
    }
}
