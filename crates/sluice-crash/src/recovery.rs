// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recovers a file system after a power cut, and makes the directory of a store in it accessible.
//!
//! e2fsck replays the journal of ext4 in user space, and debugfs copies the files: that needs no root and no loop device, and takes
//! two thirds of the time of a mount. A mount tries the code that runs after a real power cut.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use crate::loop_mount::LoopMount;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Method {
    /// Replay the journal with e2fsck, and copy the files with debugfs
    E2fsck,
    /// Mount a loop device; requires root
    Mount,
}

/// A recovered file system.
pub struct Recovered {
    store: PathBuf,
    /// Only to be dropped.
    _mounted: Option<LoopMount>,
}

impl Recovered {
    /// The directory of the store, which may be missing.
    pub fn store(&self) -> &Path {
        &self.store
    }
}

impl Method {
    /// `store` is a directory in the root of the file system; `scratch` an empty directory.
    pub fn recover(self, image: &Path, store: &str, scratch: &Path) -> Result<Recovered> {
        match self {
            Method::E2fsck => replay_journal(image, store, scratch),
            Method::Mount => mount(image, store, scratch),
        }
    }
}

fn replay_journal(image: &Path, store: &str, scratch: &Path) -> Result<Recovered> {
    let check = run(Command::new("e2fsck")
        .args(["-y", "-E", "journal_only"])
        .arg(image))?;
    // 1 and 2: it has changed something.
    if !matches!(check.status.code(), Some(0..=3)) {
        bail!("e2fsck cannot replay the journal: {}", words(&check));
    }
    let request = format!("rdump /{store} {}", scratch.display());
    let dump = run(Command::new("debugfs").arg("-R").arg(request).arg(image))?;
    // debugfs succeeds in any case; it prints its version, and then what is wrong.
    let errors = String::from_utf8_lossy(&dump.stderr);
    let mut errors = errors
        .lines()
        .skip(1)
        .filter(|line| !line.contains("File not found"));
    if let Some(error) = errors.next() {
        bail!("debugfs cannot read the file system: {error}");
    }
    Ok(Recovered {
        store: scratch.join(store),
        _mounted: None,
    })
}

fn mount(image: &Path, store: &str, scratch: &Path) -> Result<Recovered> {
    let mounted = LoopMount::new(image, scratch)?;
    Ok(Recovered {
        store: scratch.join(store),
        _mounted: Some(mounted),
    })
}

fn run(command: &mut Command) -> Result<Output> {
    let name = command.get_program().to_owned();
    command.env("LC_ALL", "C").output().with_context(|| {
        format!(
            "cannot run {}; vm/install-packages installs it",
            name.to_string_lossy()
        )
    })
}

/// What a command has said, in one line.
fn words(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&text)
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}
