// SPDX-License-Identifier: MIT OR Apache-2.0
use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal};
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

    /// The file to write, which is replaced if it exists [default: '-', standard output]
    file: Option<PathBuf>,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    // Open the pipe first, so that an error does not truncate the file.
    let reader = arguments.open.open_reader()?;
    let output = create(file_path(&arguments.file))?;
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

fn create(file: Option<&Path>) -> Result<File> {
    match file {
        Some(path) => File::create(path)
            .with_context(|| format!("cannot write {}; give a writable file", path.display())),
        None => {
            let output = io::stdout().as_fd().try_clone_to_owned();
            let output = output.context("no standard output; give a file to write")?;
            Ok(output.into())
        }
    }
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
