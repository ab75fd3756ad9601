// SPDX-License-Identifier: MIT OR Apache-2.0
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, anyhow};
use clap::Args;

use super::file_of;
use super::side::Side;
use crate::progress::Progress;
use crate::transfer;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    side: Side,

    /// The file to send; without one, or with '-', standard input
    file: Option<PathBuf>,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    // Before the pipe is opened: a receiver must not see the end of a file that never was.
    let input = open(file_of(&arguments.file))?;
    let writer = arguments.side.open_writer()?;
    let progress = Progress::of(length(&input));
    let (moved, outcome) = transfer::run(&input, &File::from(OwnedFd::from(writer)), &progress);
    outcome.map_err(|error| explain(moved, error))
}

fn open(file: Option<&Path>) -> Result<File> {
    match file {
        Some(path) => File::open(path).with_context(|| {
            format!(
                "cannot open {} to send it; give a file that you may read",
                path.display()
            )
        }),
        None => {
            let input = io::stdin().as_fd().try_clone_to_owned();
            let input = input.context("there is no standard input; name a file to send")?;
            Ok(input.into())
        }
    }
}

/// Of a file, which may be larger or smaller when it has been read.
fn length(input: &File) -> Option<u64> {
    let metadata = input.metadata().ok()?;
    (metadata.is_file() && metadata.len() > 0).then_some(metadata.len())
}

fn explain(moved: u64, error: io::Error) -> Error {
    match error.kind() {
        ErrorKind::BrokenPipe => anyhow!(
            "the receiver left after {moved} bytes had been sent, and may not have read them all; see why it left, start it again, and send anew"
        ),
        _ => Error::new(error).context(format!("sending failed after {moved} bytes; send anew")),
    }
}
