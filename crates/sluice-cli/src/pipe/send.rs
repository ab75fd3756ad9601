// SPDX-License-Identifier: MIT OR Apache-2.0
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, anyhow};
use clap::Args;

use super::open::OpenArgs;
use super::{destroyed, file_path, is_destroyed};
use crate::copy;
use crate::progress::Progress;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    open: OpenArgs,

    /// The file to send [default: '-', standard input]
    file: Option<PathBuf>,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    // Open the file first: an error after opening the pipe would look like an empty file to the receiver.
    let input = open(file_path(&arguments.file))?;
    let writer = arguments.open.open_writer()?;
    let progress = Progress::new(Progress::file_length(&input));
    let pipe = File::from(OwnedFd::from(writer));
    let (copied, outcome) = copy::copy_all(&input, &pipe, &progress);
    outcome.map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe if is_destroyed(pipe) => destroyed(copied),
        _ => explain(copied, error),
    })
}

fn open(file: Option<&Path>) -> Result<File> {
    match file {
        Some(path) => File::open(path)
            .with_context(|| format!("cannot open {}; give a readable file", path.display())),
        None => {
            let input = io::stdin().as_fd().try_clone_to_owned();
            let input = input.context("no standard input; give a file to send")?;
            Ok(input.into())
        }
    }
}

fn explain(copied: u64, error: io::Error) -> Error {
    match error.kind() {
        ErrorKind::BrokenPipe => anyhow!(
            "the receiver closed the pipe after {copied} sent bytes, some perhaps unread; restart it and send again"
        ),
        _ => Error::new(error).context(format!("sending failed after {copied} bytes; send again")),
    }
}
