// SPDX-License-Identifier: MIT OR Apache-2.0
//! Directories for the states of disks, in memory if possible.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};

/// A directory that is removed on drop.
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    pub fn new(name: &str) -> Result<Scratch> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() {
            memory.into()
        } else {
            std::env::temp_dir()
        };
        let path = parent.join(format!(
            "sluice-crash-{}-{name}-{number}",
            std::process::id()
        ));
        std::fs::create_dir(&path)
            .with_context(|| format!("cannot create the directory {}", path.display()))?;
        Ok(Scratch { path })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
