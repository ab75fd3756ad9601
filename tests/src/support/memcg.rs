// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cgroups with memory accounting.

use std::fs::{self, File};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use anyhow::{Context, Result};
use nix::sys::mman::{MlockAllFlags, mlockall};

use super::cgroup::Cgroup;
use super::check::expect;
use super::child::spawn_keeping;
use super::controller::Controller;
use super::time::eventually;
use crate::registry;

/// Memory that each CPU may hold pre-charged, and some for the process itself.
pub const SLACK: u64 = 1 << 19;

/// The memory controller, enabled for the children of a test's cgroup until this is dropped.
pub fn account_memory_of_children(home: &Cgroup) -> Result<Controller> {
    Controller::enable_for_children(home, "memory")
}

/// The cgroups of a channel's creator and of another process, whose memory is accounted.
pub struct Accounts {
    pub creator: Cgroup,
    pub other: Cgroup,
    _controller: Controller,
}

impl Accounts {
    pub fn new(context: &registry::Context) -> Result<Self> {
        let home = context.cgroup()?;
        let controller = account_memory_of_children(home)?;
        Ok(Accounts {
            creator: home.create_child("creator")?,
            other: home.create_child("other")?,
            _controller: controller,
        })
    }

    /// The bytes charged to the creator's cgroup and to the other one now.
    fn current(&self) -> Result<[u64; 2]> {
        Ok([memory_current(&self.creator)?, memory_current(&self.other)?])
    }

    /// The growth in bytes of the creator's cgroup and of the other one, in which `body` runs.
    pub fn measure_growth(
        &self,
        keep: &[BorrowedFd],
        body: impl FnOnce() -> Result<()>,
    ) -> Result<[u64; 2]> {
        let child = spawn_keeping("another process", keep, || {
            self.other.enter()?;
            let before = self.current()?;
            body()?;
            let after = self.current()?;
            Ok([0, 1].map(|of| after[of].saturating_sub(before[of])))
        })?;
        child.finish()
    }

    /// Waits until the creator's cgroup has about as much memory as before.
    pub fn expect_uncharged(&self, before: u64) -> Result<()> {
        eventually("the creator's cgroup is uncharged", || {
            Ok((memory_current(&self.creator)? <= before + SLACK).then_some(()))
        })
    }

    pub fn expect_no_kill(&self) -> Result<()> {
        for cgroup in [&self.creator, &self.other] {
            expect("processes killed for memory", oom_kills(cgroup)?, 0)?;
        }
        Ok(())
    }
}

/// The open file of a cgroup's limit. A process at the limit may have no memory left to open it, and would be killed.
pub struct MemoryMax(File);

impl MemoryMax {
    pub fn open(cgroup: &Cgroup) -> Result<Self> {
        let path = cgroup.path().join("memory.max");
        let opened = File::options().write(true).open(&path);
        opened
            .map(MemoryMax)
            .with_context(|| format!("opening {}", path.display()))
    }

    pub fn set(&self, bytes: u64) -> Result<()> {
        let text = bytes.to_string();
        let written = self.0.write_all_at(text.as_bytes(), 0);
        written.with_context(|| format!("writing {text} to memory.max"))
    }
}

pub fn set_memory_max(cgroup: &Cgroup, bytes: u64) -> Result<()> {
    MemoryMax::open(cgroup)?.set(bytes)
}

pub fn set_memory_high(cgroup: &Cgroup, bytes: u64) -> Result<()> {
    cgroup.set("memory.high", &bytes.to_string())
}

/// The bytes charged to it now. Each CPU may hold some of them in reserve.
pub fn memory_current(cgroup: &Cgroup) -> Result<u64> {
    let text = read(cgroup.path(), "memory.current")?;
    text.trim().parse().context("memory.current")
}

/// Locks all memory of this process: at the limit of its cgroup, a page fault would kill it.
pub fn lock_memory() -> Result<()> {
    mlockall(MlockAllFlags::MCL_CURRENT | MlockAllFlags::MCL_FUTURE)
        .context("locking the memory of a test")
}

/// The number of its processes killed because of its limit.
fn oom_kills(cgroup: &Cgroup) -> Result<u64> {
    let text = read(cgroup.path(), "memory.events")?;
    text.lines()
        .find_map(|line| line.strip_prefix("oom_kill "))
        .and_then(|count| count.parse().ok())
        .context("memory.events has no oom_kill")
}

fn read(directory: &Path, file: &str) -> Result<String> {
    let path = directory.join(file);
    fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
}
