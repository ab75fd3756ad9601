// SPDX-License-Identifier: MIT OR Apache-2.0
//! `sluice bench …`: the benchmark is a program of its own, which lies beside this one.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, anyhow};
use clap::Args;

const PROGRAM: &str = "sluice-bench";

#[derive(Args)]
#[command(disable_help_flag = true)]
pub struct Arguments {
    /// Those of sluice-bench, such as --quick, compare, or --help
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Becomes the benchmark; returns only when that fails.
pub fn run(arguments: &Arguments) -> Result<()> {
    let error = Command::new(beside().unwrap_or_else(|| PROGRAM.into()))
        .args(&arguments.arguments)
        .exec();
    Err(anyhow!(
        "cannot run {PROGRAM}: {error}; it belongs beside sluice or into a directory of PATH, and 'cargo build --release' makes it"
    ))
}

fn beside() -> Option<PathBuf> {
    let path = env::current_exe().ok()?.with_file_name(PROGRAM);
    path.exists().then_some(path)
}
