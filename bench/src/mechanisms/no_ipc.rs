// SPDX-License-Identifier: MIT OR Apache-2.0
//! No IPC: the sender writes one file while the receiver reads another, existing one. This is the time that the two
//! programs take themselves, the lower bound of a workload with any mechanism.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{Mechanism, stream};
use crate::harness::waiting::Waiting;

/// The receiver reads `input`; `output` is truncated for each sender. No side ever waits; the results are compared with
/// those of sleeping mechanisms.
pub fn mechanism(input: PathBuf, output: PathBuf) -> Mechanism {
    Mechanism::new("no-pipe", Waiting::Sleep, move |_| {
        let mut truncating = File::options();
        truncating.write(true).create(true).truncate(true);
        let receiver = open(File::options().read(true), &input)?;
        Ok(stream::link(receiver, open(&truncating, &output)?))
    })
}

fn open(options: &OpenOptions, path: &Path) -> Result<File> {
    options
        .open(path)
        .with_context(|| format!("cannot open {}", path.display()))
}
