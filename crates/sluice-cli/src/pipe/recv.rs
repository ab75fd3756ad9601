// SPDX-License-Identifier: MIT OR Apache-2.0
use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal};
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

    /// The file to write, replaced if it is there; without one, or with '-', standard output
    file: Option<PathBuf>,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    // Before the file, which is not to be emptied for a channel that is not there.
    let reader = arguments.side.open_reader()?;
    let output = create(file_of(&arguments.file))?;
    let progress = match output.is_terminal() {
        true => Progress::hidden(),
        false => Progress::of(None),
    };
    let (moved, outcome) = transfer::run(&File::from(OwnedFd::from(reader)), &output, &progress);
    outcome.map_err(|error| explain(moved, error))
}

fn create(file: Option<&Path>) -> Result<File> {
    match file {
        Some(path) => File::create(path).with_context(|| {
            format!(
                "cannot write {}; give a file that you may write, and send anew",
                path.display()
            )
        }),
        None => {
            let output = io::stdout().as_fd().try_clone_to_owned();
            let output = output.context("there is no standard output; name a file to write")?;
            Ok(output.into())
        }
    }
}

fn explain(moved: u64, error: io::Error) -> Error {
    match error.kind() {
        ErrorKind::BrokenPipe => anyhow!(
            "whoever read standard output left after {moved} bytes; what was received and not written is lost, send anew"
        ),
        _ => Error::new(error).context(format!(
            "receiving failed after {moved} bytes; see that there is room for them, and send anew"
        )),
    }
}
