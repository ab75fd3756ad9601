// SPDX-License-Identifier: MIT OR Apache-2.0
//! No pipe at all: the sender writes one file while the receiver reads another that was there before. What two programs take
//! like this they take beside any pipe, however fast: the floor under a job whose programs do more than move bytes.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::stream::StreamLink;
use super::{Link, Mechanism, Waiting};

pub struct Apart {
    /// What the receiver reads.
    there: PathBuf,
    /// What the sender writes, anew each time.
    made: PathBuf,
}

impl Apart {
    pub fn new(there: PathBuf, made: PathBuf) -> Self {
        Self { there, made }
    }
}

impl Mechanism for Apart {
    fn name(&self) -> &'static str {
        "no-pipe"
    }

    /// For nobody, but like those that it is the floor of.
    fn waiting(&self) -> Waiting {
        Waiting::Sleep
    }

    fn link(&self, _size: usize) -> Result<Box<dyn Link>> {
        Ok(Box::new(StreamLink {
            sender: open(
                File::options().write(true).create(true).truncate(true),
                &self.made,
            )?,
            receiver: open(File::options().read(true), &self.there)?,
        }))
    }
}

fn open(options: &std::fs::OpenOptions, path: &Path) -> Result<File> {
    options
        .open(path)
        .with_context(|| format!("cannot open {}", path.display()))
}
