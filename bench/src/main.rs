// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures Sluice and other IPC mechanisms, and compares two results. `sluice bench` runs this program.

use std::process::ExitCode;

use clap::Parser;
use sluice_bench::command::Options;

#[derive(Parser)]
#[command(
    name = "sluice-bench",
    about = "Measure Sluice and other IPC mechanisms in the same run",
    version
)]
struct CommandLine {
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    CommandLine::parse().options.run("sluice-bench")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_options_are_consistent() {
        CommandLine::command().debug_assert();
    }
}
