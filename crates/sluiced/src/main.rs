// SPDX-License-Identifier: MIT OR Apache-2.0
use std::process::ExitCode;

use clap::Parser as _;
use sluiced::options::Options;
use sluiced::{daemon, log};

fn main() -> ExitCode {
    match daemon::run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log::line(format_args!("{}", sluice::explain(error.as_ref())));
            ExitCode::FAILURE
        }
    }
}
