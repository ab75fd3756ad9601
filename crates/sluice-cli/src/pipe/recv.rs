// SPDX-License-Identifier: MIT OR Apache-2.0
use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use anyhow::{Error, Result, anyhow};
use clap::Args;

use super::open::OpenArgs;
use super::{destroyed, is_destroyed};
use crate::progress::Progress;
use crate::{copy, stream};

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    open: OpenArgs,

    /// The file to write, which is replaced if it exists [default: '-', standard output]
    file: Option<PathBuf>,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    stream::require_output(&arguments.file)?;
    // Open the pipe first, so that an error does not truncate the file.
    let reader = arguments.open.open_reader()?;
    let output = stream::create(&arguments.file)?;
    let progress = match output.is_terminal() {
        true => Progress::hidden(),
        false => Progress::new(None),
    };
    let pipe = File::from(OwnedFd::from(reader));
    let (copied, outcome) = copy::copy_all(&pipe, &output, &progress);
    outcome.map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe if is_destroyed(pipe) => destroyed(copied),
        _ => explain(copied, error),
    })
}

fn explain(copied: u64, error: io::Error) -> Error {
    match error.kind() {
        ErrorKind::BrokenPipe => anyhow!(
            "the reader of standard output closed it after {copied} bytes; received data is lost, send it again"
        ),
        _ => Error::new(error).context(format!(
            "receiving failed after {copied} bytes; check the free space, and send again"
        )),
    }
}
