// SPDX-License-Identifier: MIT OR Apache-2.0
//! Directories and files for mechanisms that need one.

use std::cell::{Cell, OnceCell};
use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::{Builder, TempDir};

pub const MEMORY: &str = "/dev/shm";

/// A file of zeros in memory, without a name, so that nothing is left behind.
pub fn memory_file(len: usize) -> Result<File> {
    let file = tempfile::tempfile_in(MEMORY);
    let file = file.with_context(|| format!("cannot create a file in {MEMORY}"))?;
    file.set_len(len as u64)
        .with_context(|| format!("cannot enlarge a file to {len} bytes"))?;
    Ok(file)
}

/// Paths in a private directory, which is created at first use.
pub struct TempPaths {
    parent: PathBuf,
    directory: OnceCell<TempDir>,
    count: Cell<usize>,
}

impl TempPaths {
    pub fn in_directory(parent: PathBuf) -> Self {
        Self {
            parent,
            directory: OnceCell::new(),
            count: Cell::new(0),
        }
    }

    pub fn next_path(&self) -> Result<PathBuf> {
        let number = self.count.replace(self.count.get() + 1);
        Ok(self.directory()?.join(number.to_string()))
    }

    pub fn directory(&self) -> Result<&Path> {
        if let Some(directory) = self.directory.get() {
            return Ok(directory.path());
        }
        let directory = private_directory(&self.parent)?;
        Ok(self.directory.get_or_init(|| directory).path())
    }
}

/// A directory of this user, removed with its contents when dropped.
pub fn private_directory(parent: &Path) -> Result<TempDir> {
    let mut builder = Builder::new();
    let builder = builder.permissions(Permissions::from_mode(0o700));
    let directory = builder.prefix("sluice-bench-").tempdir_in(parent);
    directory.with_context(|| format!("cannot create a directory in {}", parent.display()))
}
