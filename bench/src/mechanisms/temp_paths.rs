// SPDX-License-Identifier: MIT OR Apache-2.0
//! Directories and files for mechanisms that need one.

use std::cell::{Cell, OnceCell};
use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::unistd::mkdtemp;

pub const MEMORY: &str = "/dev/shm";

/// A file of zeros in memory, without a name, so that nothing is left behind.
pub fn memory_file(len: usize) -> Result<File> {
    let mut options = File::options();
    options.read(true).write(true).mode(0o600);
    let file = options.custom_flags(libc::O_TMPFILE).open(MEMORY);
    let file = file.with_context(|| format!("cannot create a file in {MEMORY}"))?;
    file.set_len(len as u64)
        .with_context(|| format!("cannot enlarge a file to {len} bytes"))?;
    Ok(file)
}

/// Paths in a private directory, which is created at first use.
pub struct TempPaths {
    parent: PathBuf,
    directory: OnceCell<Directory>,
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
            return Ok(&directory.0);
        }
        let directory = Directory::new(&self.parent)?;
        Ok(&self.directory.get_or_init(|| directory).0)
    }
}

/// A directory of this user, removed with its contents when dropped.
pub struct Directory(pub PathBuf);

impl Directory {
    pub fn new(parent: &Path) -> Result<Self> {
        let template = parent.join("sluice-bench-XXXXXX");
        let path = mkdtemp(&template)
            .with_context(|| format!("cannot create a directory like {}", template.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            let path = self.0.display();
            eprintln!("cannot remove {path}: {error}; remove it manually");
        }
    }
}
