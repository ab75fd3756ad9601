// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures Sluice beside what people use today, and compares two such measurements. `sluice bench` does the same.

use std::process::ExitCode;

use clap::Parser;
use sluice_bench::command::Options;

#[derive(Parser)]
#[command(
    name = "sluice-bench",
    about = "Measure Sluice beside what people use today, in the same run",
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
