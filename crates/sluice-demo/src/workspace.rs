// SPDX-License-Identifier: MIT OR Apache-2.0
//! A tmpfs in a mount namespace of our own: whatever is mounted goes with this process, even if it is killed.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::Uid;
use sluice_testkit::units::megabytes;

use crate::files::Source;

/// For the program and its libraries, and for what crun notes.
const OVERHEAD: u64 = 64 << 20;
/// What is left for the kernel and all else.
const RESERVE: u64 = 128 << 20;

pub struct Workspace {
    path: PathBuf,
}

impl Workspace {
    pub fn create(sources: &[Source; 2]) -> Result<Self> {
        if !Uid::effective().is_root() {
            bail!(
                "containers and modules need root; run 'make demo', which does all of this inside a virtual machine"
            );
        }
        let files = sources[0].bytes + sources[1].bytes;
        check_memory(files)?;
        unshare(CloneFlags::CLONE_NEWNS).context("cannot make a mount namespace")?;
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(None::<&str>, "/", None::<&str>, private, None::<&str>)
            .context("cannot make the mounts private")?;
        Self::mount(files + OVERHEAD)
    }

    fn mount(bytes: u64) -> Result<Self> {
        let path = PathBuf::from(format!("/run/sluice-demo-{}", std::process::id()));
        fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        let workspace = Self { path };
        let options = format!("size={bytes},mode=755");
        mount(
            Some("sluice-demo"),
            workspace.path(),
            Some("tmpfs"),
            MsFlags::empty(),
            Some(options.as_str()),
        )
        .context("cannot mount a tmpfs")?;
        Ok(workspace)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        // Not mounted when mounting was what failed; the directory goes in both cases.
        let _ = umount2(&self.path, MntFlags::MNT_DETACH);
        if let Err(error) = fs::remove_dir(&self.path) {
            eprintln!(
                "cannot remove {} ({error}); remove it by hand",
                self.path.display()
            );
        }
    }
}

/// Shows `source` at `target` too, as a mount of its own.
pub fn bind(source: &Path, target: &Path) -> Result<()> {
    let describe = || format!("cannot bind {} to {}", source.display(), target.display());
    mount(
        Some(source),
        target,
        None::<&str>,
        MsFlags::MS_BIND,
        None::<&str>,
    )
    .with_context(describe)?;
    mount(
        None::<&str>,
        target,
        None::<&str>,
        MsFlags::MS_PRIVATE,
        None::<&str>,
    )
    .with_context(describe)
}

fn check_memory(files: u64) -> Result<()> {
    let meminfo = fs::read_to_string("/proc/meminfo").context("cannot read /proc/meminfo")?;
    let available =
        available_memory(&meminfo).context("/proc/meminfo does not tell what is available")?;
    let needed = needed_memory(files);
    if available < needed {
        bail!(
            "{} of memory are needed for these files and {} are free; give the VM more ('vm/run --memory 4G …') or name smaller files with --file",
            megabytes(needed),
            megabytes(available)
        );
    }
    Ok(())
}

/// Each file is there three times: the copy that is sent from, in the sender, and in the receiver.
fn needed_memory(files: u64) -> u64 {
    3 * files + OVERHEAD + RESERVE
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
