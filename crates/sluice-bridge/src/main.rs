// SPDX-License-Identifier: MIT OR Apache-2.0
use std::process::ExitCode;

use anyhow::Error;
use clap::Parser as _;
use mimalloc::MiMalloc;
use sluice_bridge::config::Config;
use sluice_bridge::notify::kept_descriptors;
use sluice_bridge::options::{Command, Options};
use sluice_bridge::{daemon, log};

/// The client allocates a dozen times per message, and frees as many as are in flight at once.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// The configuration is wrong, as with a wrong option: another attempt would fail, too.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let command = Options::parse().command;
    let (Command::Check(file) | Command::Run(file)) = &command;
    let path = &file.config;
    // Before anything opens a descriptor.
    let kept = kept_descriptors();
    let config = match Config::read(path) {
        Ok(config) => config,
        Err(error) => return fail(&error, USAGE),
    };
    if let Command::Check(_) = command {
        let (buses, maps) = (config.buses.len(), config.maps.len());
        println!("{}: valid, {buses} buses, {maps} maps", path.display());
        return ExitCode::SUCCESS;
    }
    match daemon::run(path, config, kept) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error, 1),
    }
}

fn fail(error: &Error, status: u8) -> ExitCode {
    log::line(format_args!("{}", sluice::explain(error.as_ref())));
    status.into()
}
