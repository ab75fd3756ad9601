// SPDX-License-Identifier: MIT OR Apache-2.0
//! `sluice bench …`: executes the program sluice-bench.

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
    /// Arguments of sluice-bench, such as --quick, compare, or --help
    #[arg(
        value_name = "ARGUMENT",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    arguments: Vec<OsString>,
}

/// Replaces this process; returns only on an error.
pub fn run(arguments: &Arguments) -> Result<()> {
    let error = Command::new(program_beside_this().unwrap_or_else(|| PROGRAM.into()))
        .args(&arguments.arguments)
        .exec();
    Err(anyhow!(
        "cannot run {PROGRAM}: {error}; build it in the source tree (cd bench && cargo build --profile measure) and put it beside sluice or in PATH"
    ))
}

fn program_beside_this() -> Option<PathBuf> {
    let path = env::current_exe().ok()?.with_file_name(PROGRAM);
    path.exists().then_some(path)
}
