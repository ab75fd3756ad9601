// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scripts for bash.

use std::process::{Command, Output};

use anyhow::{Result, ensure};

/// A bash that runs this script and exits at the first error.
pub fn bash(script: &str) -> Command {
    let mut command = Command::new("bash");
    command.args(["-euo", "pipefail", "-c", script]);
    command
}

pub fn expect_success(output: &Output) -> Result<()> {
    ensure!(
        output.status.success(),
        "the script ended with {}; stderr: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim_end()
    );
    Ok(())
}
