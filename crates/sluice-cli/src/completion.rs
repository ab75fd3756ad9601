// SPDX-License-Identifier: MIT OR Apache-2.0
use anyhow::Result;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::{Cli, output};

#[derive(Args)]
pub struct Arguments {
    /// The shell
    shell: Shell,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    output::print(&script(arguments.shell))
}

fn script(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "sluice", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_script_has_commands_and_options() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            for word in [
                "doctor",
                "framing",
                "allow-everyone",
                "interval",
                "endpoint",
                "destroy",
                "permissions",
                "multicast",
                "if-version",
                "durable",
                "nowait",
            ] {
                assert!(script(shell).contains(word), "no {word} for {shell}");
            }
        }
    }
}
