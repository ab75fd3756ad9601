// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fuzzes the system calls of the module, guided by coverage: runs as root in a virtual machine in which the module is loaded
//! (tests/kfuzz). Programs are sequences of calls with typed arguments, from the description in spec/.

mod calls;
mod description;
mod execute;
mod fuzz;
mod generate;
mod guest;
mod kcov;
mod keeper;
mod memory;
mod netlink;
mod program;
mod seeds;
mod uring;
mod values;
mod worker;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use sluice_testkit::time::{measure_slowness, set_slowness};

#[derive(Parser)]
#[command(about = "Fuzzes the system calls of the module, or executes programs again")]
struct Options {
    /// Where new inputs, findings and the executed basic blocks are written
    #[arg(long)]
    folder: PathBuf,
    /// How long to fuzz
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Of the random numbers
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Seconds after which a program is killed
    #[arg(long, default_value_t = 10)]
    limit: u64,
    /// Executes the programs of the files instead, so many times, and prints each call
    #[arg(long, value_name = "TIMES")]
    replay: Option<u32>,
    /// Executes the programs of the files only, and writes those that add something
    #[arg(long)]
    only_corpus: bool,
    /// Files with programs, one a line
    files: Vec<PathBuf>,
}

fn main() -> Result<()> {
    let options = Options::parse();
    set_slowness(measure_slowness());
    let limit = Duration::from_secs(options.limit);
    let mut fuzzer = fuzz::Fuzzer::new(&options.folder, options.seed, limit)?;
    match options.replay {
        Some(times) => options
            .files
            .iter()
            .try_for_each(|file| fuzzer.replay(file, times)),
        None => {
            let seconds = if options.only_corpus {
                0
            } else {
                options.seconds
            };
            fuzzer.fuzz(&options.files, Duration::from_secs(seconds))
        }
    }
}
