// SPDX-License-Identifier: MIT OR Apache-2.0
//! No IPC: the sender writes one file while the receiver reads another, existing one. This is the time that the two
//! programs take themselves, the lower bound of a workload with any mechanism.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::stream::StreamLink;
use super::{Link, Mechanism, Waiting};

pub struct NoIpc {
    /// The file that the receiver reads.
    input: PathBuf,
    /// The file that the sender writes, truncated each time.
    output: PathBuf,
}

impl NoIpc {
    pub fn new(input: PathBuf, output: PathBuf) -> Self {
        Self { input, output }
    }
}

impl Mechanism for NoIpc {
    fn name(&self) -> &'static str {
        "no-pipe"
    }

    /// It never waits, and is compared with sleeping mechanisms.
    fn waiting(&self) -> Waiting {
        Waiting::Sleep
    }

    fn link(&self, _size: usize) -> Result<Box<dyn Link>> {
        Ok(Box::new(StreamLink {
            sender: open(
                File::options().write(true).create(true).truncate(true),
                &self.output,
            )?,
            receiver: open(File::options().read(true), &self.input)?,
        }))
    }
}

fn open(options: &std::fs::OpenOptions, path: &Path) -> Result<File> {
    options
        .open(path)
        .with_context(|| format!("cannot open {}", path.display()))
}
