// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths for what has to have a name in the file system so that two processes find it.

use std::cell::{Cell, OnceCell};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::unistd::mkdtemp;

/// Paths in a directory that is nobody else's, which is made when the first one is asked for.
pub struct Places {
    parent: PathBuf,
    directory: OnceCell<Directory>,
    given: Cell<usize>,
}

impl Places {
    pub fn below(parent: PathBuf) -> Self {
        Self {
            parent,
            directory: OnceCell::new(),
            given: Cell::new(0),
        }
    }

    /// One at which there is nothing yet.
    pub fn fresh(&self) -> Result<PathBuf> {
        let number = self.given.replace(self.given.get() + 1);
        Ok(self.directory()?.join(number.to_string()))
    }

    pub fn directory(&self) -> Result<&Path> {
        if self.directory.get().is_none() {
            let made = Directory::new(&self.parent)?;
            return Ok(&self.directory.get_or_init(|| made).0);
        }
        let directory = self.directory.get().context("it was there just now")?;
        Ok(&directory.0)
    }
}

/// Removed with all that is in it when it is dropped.
struct Directory(PathBuf);

impl Directory {
    fn new(parent: &Path) -> Result<Self> {
        let template = parent.join("sluice-bench-XXXXXX");
        let path = mkdtemp(&template)
            .with_context(|| format!("cannot make a directory like {}", template.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("cannot remove {}: {error}", self.0.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_is_another_one_and_goes_with_what_is_there() {
        let places = Places::below(std::env::temp_dir());
        let (one, other) = (places.fresh().unwrap(), places.fresh().unwrap());
        assert_ne!(one, other);
        fs::write(&one, "as if somebody had been killed").unwrap();
        drop(places);
        assert!(!one.parent().unwrap().exists());
    }
}
