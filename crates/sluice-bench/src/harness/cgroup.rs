// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cgroups of our own for the measured processes: the pipe of Sluice is a different one in each.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};

/// A directory of cgroups, removed with all that is in it when dropped.
pub struct Tree {
    root: PathBuf,
    made: Cell<usize>,
}

impl Tree {
    pub fn create(name: &str) -> Result<Self> {
        let mount = mount_point()?;
        let root = mount.join(format!("{name}-{}", std::process::id()));
        fs::create_dir(&root).with_context(|| {
            format!("cannot make the cgroup {}; this needs root", root.display())
        })?;
        Ok(Self {
            root,
            made: Cell::new(0),
        })
    }

    /// A cgroup that nobody has been in yet.
    pub fn fresh(&self) -> Result<PathBuf> {
        let number = self.made.get();
        self.made.set(number + 1);
        let path = self.root.join(number.to_string());
        fs::create_dir(&path)
            .with_context(|| format!("cannot make the cgroup {}", path.display()))?;
        Ok(path)
    }

    fn remove(&self) -> Result<()> {
        for number in 0..self.made.get() {
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
        "no cgroup v2 hierarchy is mounted; mount one with 'mount -t cgroup2 none /sys/fs/cgroup', or use the VM, which has one",
    )
}

/// Moves the calling process.
pub fn enter(cgroup: &Path) -> Result<()> {
    fs::write(cgroup.join("cgroup.procs"), "0")
        .with_context(|| format!("cannot move to the cgroup {}", cgroup.display()))
}

/// A process that was just killed still counts for a moment.
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
        format!("cannot remove the cgroup {path}; end the processes in {path}/cgroup.procs, then 'rmdir {path}'")
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
    fn the_unified_hierarchy_is_found_beside_old_ones() {
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
