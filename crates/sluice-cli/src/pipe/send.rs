// SPDX-License-Identifier: MIT OR Apache-2.0
use std::fs::File;
use std::io::{self, ErrorKind};
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

    /// The file to send [default: '-', standard input]
    file: Option<PathBuf>,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    // Open the file first: an error after opening the pipe would look like an empty file to the receiver.
    let input = stream::open(&arguments.file, "send")?;
    let writer = arguments.open.open_writer()?;
    let progress = Progress::new(Progress::file_length(&input));
    let pipe = File::from(OwnedFd::from(writer));
    let (copied, outcome) = copy::copy_all(&input, &pipe, &progress);
    outcome.map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe if is_destroyed(pipe) => destroyed(copied),
        _ => explain(copied, error),
    })
}

fn explain(copied: u64, error: io::Error) -> Error {
    match error.kind() {
        ErrorKind::BrokenPipe => anyhow!(
            "the receiver closed the pipe after {copied} sent bytes, some perhaps unread; restart it and send again"
        ),
        _ => Error::new(error).context(format!("sending failed after {copied} bytes; send again")),
    }
}
