// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cgroups for the measured processes: each has its own pipe of Sluice.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};

/// A directory of cgroups, removed with its contents when dropped.
pub struct Tree {
    root: PathBuf,
    created: Cell<usize>,
}

impl Tree {
    pub fn create(name: &str) -> Result<Self> {
        let mount = mount_point()?;
        let root = mount.join(format!("{name}-{}", std::process::id()));
        fs::create_dir(&root)
            .with_context(|| format!("cannot create the cgroup {}; run as root", root.display()))?;
        Ok(Self {
            root,
            created: Cell::new(0),
        })
    }

    /// Creates an empty cgroup.
    pub fn create_cgroup(&self) -> Result<PathBuf> {
        let number = self.created.get();
        self.created.set(number + 1);
        let path = self.root.join(number.to_string());
        fs::create_dir(&path)
            .with_context(|| format!("cannot create the cgroup {}", path.display()))?;
        Ok(path)
    }

    fn remove(&self) -> Result<()> {
        for number in 0..self.created.get() {
            remove_when_empty(&self.root.join(number.to_string()))?;
        }
        remove_when_empty(&self.root)
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            eprintln!("{error:#}");
        }
    }
}

/// Where the unified hierarchy is mounted.
pub fn mount_point() -> Result<PathBuf> {
    let mounts =
        fs::read_to_string("/proc/self/mounts").context("cannot read /proc/self/mounts")?;
    unified_mount(&mounts).context(
        "no cgroup v2 hierarchy is mounted; run 'mount -t cgroup2 none /sys/fs/cgroup', or use the VM",
    )
}

/// Moves the calling process.
pub fn enter(cgroup: &Path) -> Result<()> {
    fs::write(cgroup.join("cgroup.procs"), "0")
        .with_context(|| format!("cannot move to the cgroup {}", cgroup.display()))
}

/// A killed process is counted until it has been reaped, so removal is retried.
pub fn remove_when_empty(cgroup: &Path) -> Result<()> {
    const TRIES: usize = 100;
    for _ in 1..TRIES {
        if !cgroup.exists() || fs::remove_dir(cgroup).is_ok() {
            return Ok(());
        }
        sleep(Duration::from_millis(20));
    }
    fs::remove_dir(cgroup).with_context(|| {
        let path = cgroup.display();
        format!("cannot remove the cgroup {path}; end the processes in its cgroup.procs, then run 'rmdir {path}'")
    })
}

fn unified_mount(mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let (_, path, kind) = (fields.next()?, fields.next()?, fields.next()?);
        (kind == "cgroup2").then(|| PathBuf::from(path))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unified_hierarchy_is_found_among_v1_mounts() {
        let mounts = "proc /proc proc rw 0 0\n\
                      cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw,nosuid 0 0\n";
        assert_eq!(
            unified_mount(mounts),
            Some(PathBuf::from("/sys/fs/cgroup/unified"))
        );
        assert_eq!(unified_mount("proc /proc proc rw 0 0\n"), None);
    }
}
