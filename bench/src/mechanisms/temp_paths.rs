// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths and names for mechanisms that need one.

use std::cell::{Cell, OnceCell};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use nix::unistd::mkdtemp;

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

    /// Returns an unused path.
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

/// A name for a POSIX message queue, shared memory or semaphore that does not exist.
pub fn unique_name() -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("/sluice-bench-{}-{number}", std::process::id())
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
            eprintln!(
                "cannot remove {}: {error}; remove it manually",
                self.0.display()
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_distinct_and_removed_with_their_files() {
        let paths = TempPaths::in_directory(std::env::temp_dir());
        let (one, other) = (paths.next_path().unwrap(), paths.next_path().unwrap());
        assert_ne!(one, other);
        fs::write(&one, "left by a killed process").unwrap();
        drop(paths);
        assert!(!one.parent().unwrap().exists());
    }
}
