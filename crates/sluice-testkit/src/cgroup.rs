// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cgroups (v2) for the tests.

use std::cell::{Cell, RefCell};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::unistd::Pid;
use serde::{Serialize, de::DeserializeOwned};

use crate::child::{Child, spawn};
use crate::time;

/// All mount points of the unified hierarchy.
pub fn mounts() -> Result<Vec<PathBuf>> {
    const TABLE: &str = "/proc/self/mountinfo";
    let table = fs::read_to_string(TABLE).with_context(|| format!("cannot read {TABLE}"))?;
    Ok(parse_mounts(&table))
}

/// The latest mount point of the unified hierarchy.
pub fn mount_point() -> Result<PathBuf> {
    mounts()?.pop().context(
        "no cgroup v2 hierarchy is mounted; run 'mount -t cgroup2 none /sys/fs/cgroup', or use the VM",
    )
}

/// Mount points of type cgroup2; the fields up to ` - ` vary in number.
fn parse_mounts(table: &str) -> Vec<PathBuf> {
    table
        .lines()
        .filter_map(|line| {
            let (left, right) = line.split_once(" - ")?;
            let point = left.split(' ').nth(4)?;
            right.starts_with("cgroup2 ").then(|| point.into())
        })
        .collect()
}

/// A cgroup, by its directory. It is not removed on drop: that it can be removed is part of the test.
#[derive(Clone, Debug)]
pub struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    /// The root of the hierarchy as visible to this process.
    pub fn root() -> Result<Self> {
        Ok(Cgroup {
            path: mount_point()?,
        })
    }

    /// The cgroup of this process.
    pub fn own() -> Result<Self> {
        let text =
            fs::read_to_string("/proc/self/cgroup").context("cannot read /proc/self/cgroup")?;
        let name = text
            .lines()
            .find_map(|line| line.strip_prefix("0::/"))
            .context("this process is in no cgroup v2")?;
        Ok(Cgroup {
            path: Self::root()?.path.join(name),
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn create_child(&self, name: &str) -> Result<Self> {
        let path = self.path.join(name);
        fs::create_dir(&path)
            .with_context(|| format!("cannot create the cgroup {}; run as root", path.display()))?;
        Ok(Cgroup { path })
    }

    /// Its directory, opened: the module's argument for a scope.
    pub fn directory(&self) -> Result<File> {
        File::open(&self.path)
            .with_context(|| format!("cannot open the cgroup {}", self.path.display()))
    }

    /// Spawns a child in this cgroup.
    pub fn spawn<T, F>(&self, what: &str, body: F) -> Result<Child<T>>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce() -> Result<T>,
    {
        spawn(what, || {
            self.enter()?;
            body()
        })
    }

    /// Moves this process here.
    pub fn enter(&self) -> Result<()> {
        self.set("cgroup.procs", "0")
    }

    /// Moves another process here.
    pub fn adopt(&self, pid: Pid) -> Result<()> {
        self.set("cgroup.procs", &pid.to_string())
    }

    /// Moves the calling thread only; the cgroup must be threaded.
    pub fn enter_with_this_thread(&self) -> Result<()> {
        self.set("cgroup.threads", "0")
    }

    pub fn make_threaded(&self) -> Result<()> {
        self.set("cgroup.type", "threaded")
    }

    pub fn set(&self, file: &str, value: &str) -> Result<()> {
        let path = self.path.join(file);
        fs::write(&path, value)
            .with_context(|| format!("cannot write {value} to {}", path.display()))
    }

    /// The number of removed descendants that the kernel still holds.
    pub fn dying_descendants(&self) -> Result<u64> {
        let path = self.path.join("cgroup.stat");
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        text.lines()
            .find_map(|line| line.strip_prefix("nr_dying_descendants "))
            .and_then(|count| count.parse().ok())
            .with_context(|| format!("{} has no nr_dying_descendants", path.display()))
    }

    /// Waits until the kernel holds at most `expected` removed descendants.
    pub fn expect_dying(&self, expected: u64) -> Result<()> {
        let mut seen = 0;
        let settled = time::eventually("removed cgroups are freed", || {
            seen = self.dying_descendants()?;
            Ok((seen <= expected).then_some(()))
        });
        settled.with_context(|| {
            format!("removed cgroups that are still held: {seen}, expected {expected}")
        })
    }

    /// Removes it. A process that was just reaped may keep it busy for a short time.
    pub fn remove(&self) -> Result<()> {
        let path = self.path.display();
        let removed = time::eventually("it is empty", || match fs::remove_dir(&self.path) {
            Ok(()) => Ok(Some(())),
            Err(error) if is_busy(&error) => Ok(None),
            Err(error) => Err(error.into()),
        });
        removed.with_context(|| {
            format!("cannot remove the cgroup {path}; end the processes in its cgroup.procs, then run 'rmdir {path}'")
        })
    }

    /// Removes it with all its descendants.
    pub fn remove_tree(&self) -> Result<()> {
        let entries = fs::read_dir(&self.path)
            .with_context(|| format!("cannot list the cgroup {}", self.path.display()))?;
        for entry in entries.flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                Cgroup { path: entry.path() }.remove_tree()?;
            }
        }
        self.remove()
    }
}

/// A cgroup of this program, with numbered cgroups in it; removed with its contents when dropped.
pub struct Tree {
    top: Cgroup,
    created: Cell<usize>,
    temporary: RefCell<Vec<Cgroup>>,
}

impl Tree {
    pub fn create(name: &str) -> Result<Self> {
        let name = format!("{name}-{}", std::process::id());
        Ok(Self {
            top: Cgroup::root()?.create_child(&name)?,
            created: Cell::new(0),
            temporary: RefCell::default(),
        })
    }

    /// Creates an empty cgroup.
    pub fn create_cgroup(&self) -> Result<Cgroup> {
        let number = self.created.replace(self.created.get() + 1);
        self.top.create_child(&number.to_string())
    }

    /// Creates an empty cgroup that [`Tree::remove_temporary`] removes, with its channels.
    pub fn create_temporary(&self) -> Result<Cgroup> {
        let cgroup = self.create_cgroup()?;
        self.temporary.borrow_mut().push(cgroup.clone());
        Ok(cgroup)
    }

    pub fn remove_temporary(&self) -> Result<()> {
        self.temporary.take().iter().try_for_each(Cgroup::remove)
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        if let Err(error) = self.top.remove_tree() {
            eprintln!("{error:#}");
        }
    }
}

fn is_busy(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::EBUSY as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unified_mounts_are_found() {
        let table = "\
25 1 0:22 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
26 1 0:23 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw
27 1 0:24 / /tmp rw - tmpfs cgroup2 rw
28 1 0:25 / /mnt rw,relatime - cgroup2 none rw
";
        let expected: Vec<PathBuf> = vec!["/sys/fs/cgroup/unified".into(), "/mnt".into()];
        assert_eq!(parse_mounts(table), expected);
    }
}
