// SPDX-License-Identifier: MIT OR Apache-2.0
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Connect buses and maps of this host with subjects, streams and buckets of NATS
#[derive(Debug, Parser)]
#[command(name = "sluice-bridge", version)]
pub struct Options {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Check the configuration file, without a module or a server
    Check(ConfigFile),
    /// Bridge until SIGTERM or SIGINT
    Run(ConfigFile),
}

#[derive(Args, Debug)]
pub struct ConfigFile {
    /// The configuration file
    #[arg(long, value_name = "FILE", default_value = "/etc/sluice/bridge.toml")]
    pub config: PathBuf,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_options_are_consistent() {
        Options::command().debug_assert();
    }
}
