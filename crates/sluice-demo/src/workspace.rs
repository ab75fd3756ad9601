// SPDX-License-Identifier: MIT OR Apache-2.0
//! A tmpfs in a private mount namespace: all mounts disappear with this process, even if it is killed.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use sluice_testkit::units::megabytes;

use crate::files::Source;

/// Each file is in memory as sent and as received.
const COPIES: u64 = 2;
/// For the programs in the containers and their libraries, and for the state of crun.
const OVERHEAD: u64 = 64 << 20;
/// For the kernel and all processes.
const RESERVE: u64 = 128 << 20;

pub struct Workspace {
    path: PathBuf,
}

impl Workspace {
    pub fn create(sources: &[Source; 2]) -> Result<Self> {
        let files = sources[0].bytes + sources[1].bytes;
        check_memory(files)?;
        unshare(CloneFlags::CLONE_NEWNS)
            .context("cannot create a mount namespace; check CONFIG_NAMESPACES of the kernel")?;
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(None::<&str>, "/", None::<&str>, private, None::<&str>)
            .context("cannot make the mounts private; check /proc/self/mounts")?;
        Self::mount(COPIES * files + OVERHEAD)
    }

    fn mount(bytes: u64) -> Result<Self> {
        let path = PathBuf::from(format!("/run/sluice-demo-{}", std::process::id()));
        fs::create_dir(&path)
            .with_context(|| format!("cannot create {}; run as root", path.display()))?;
        let workspace = Self { path };
        let options = format!("size={bytes},mode=755");
        mount(
            Some("sluice-demo"),
            workspace.path(),
            Some("tmpfs"),
            MsFlags::empty(),
            Some(options.as_str()),
        )
        .context("cannot mount a tmpfs; 'dmesg | tail' may give the reason")?;
        Ok(workspace)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        // Fails if mounting had failed; the directory is removed in both cases.
        let _ = umount2(&self.path, MntFlags::MNT_DETACH);
        if let Err(error) = fs::remove_dir(&self.path) {
            eprintln!(
                "cannot remove {} ({error}); remove it by hand",
                self.path.display()
            );
        }
    }
}

/// Makes `source` visible at `target`, too.
pub fn bind(source: &Path, target: &Path) -> Result<()> {
    let none = None::<&str>;
    mount(Some(source), target, none, MsFlags::MS_BIND, none).with_context(|| {
        let (source, target) = (source.display(), target.display());
        format!("cannot bind {source} to {target}; check /proc/self/mounts")
    })
}

fn check_memory(files: u64) -> Result<()> {
    let meminfo =
        fs::read_to_string("/proc/meminfo").context("cannot read /proc/meminfo; mount /proc")?;
    let available = available_memory(&meminfo)
        .context("/proc/meminfo has no MemAvailable; Linux 6.1 or newer is needed")?;
    let needed = needed_memory(files);
    if available < needed {
        bail!(
            "{} of memory are needed for these files and {} are available; give the VM more ('vm/run --memory 4G …') or name smaller files with --file",
            megabytes(needed),
            megabytes(available)
        );
    }
    Ok(())
}

fn needed_memory(files: u64) -> u64 {
    COPIES * files + OVERHEAD + RESERVE
}

fn available_memory(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_read_in_bytes() {
        let meminfo = "MemTotal:        2019000 kB\nMemFree:  1 kB\nMemAvailable:    1900000 kB\n";
        assert_eq!(available_memory(meminfo), Some(1_900_000 * 1024));
        assert_eq!(available_memory("MemTotal: 1 kB\n"), None);
    }

    #[test]
    fn two_large_compiler_libraries_fit_into_two_gigabytes() {
        let files = 153_621_360 + 199_603_328;
        assert!(needed_memory(files) < 1_850_000_000);
    }
}
