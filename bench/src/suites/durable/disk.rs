// SPDX-License-Identifier: MIT OR Apache-2.0
//! The disk on which all stores of the suite have their files.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use nix::mount::{MsFlags, mount, umount};

use crate::mechanisms::temp_paths::Directory;

/// What must be zero, so that no file system is lost by mistake: the superblocks of ext4 and others are in it.
const BLANK: usize = 1 << 20;

/// An ext4 file system, mounted until it is dropped.
pub struct Disk(Directory);

impl Disk {
    /// Makes the file system on an empty disk.
    pub fn mount(device: &Path) -> Result<Self> {
        let name = device.display();
        expect_blank(device)?;
        // Complete from the beginning: one that is initialized later writes while it is mounted.
        let made = Command::new("mkfs.ext4")
            .args(["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"])
            .arg(device)
            .status()
            .context("cannot start mkfs.ext4; install e2fsprogs")?;
        ensure!(made.success(), "mkfs.ext4 {name} failed: {made}");
        let point = Directory::new(&std::env::temp_dir())?;
        let (flags, options) = (MsFlags::MS_NOATIME, None::<&str>);
        mount(Some(device), &point.0, Some("ext4"), flags, options)
            .with_context(|| format!("cannot mount {name}; see 'dmesg | tail'"))?;
        Ok(Self(point))
    }

    /// A new folder.
    pub fn folder(&self, name: &str) -> Result<PathBuf> {
        let path = self.0.0.join(name);
        fs::create_dir(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(path)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Err(error) = umount(&self.0.0) {
            let path = self.0.0.display();
            eprintln!("cannot unmount {path}: {error}; run 'umount {path}'");
        }
    }
}

fn expect_blank(device: &Path) -> Result<()> {
    let name = device.display();
    let mut begin = vec![0; BLANK];
    File::open(device)
        .and_then(|mut file| file.read_exact(&mut begin))
        .with_context(|| format!("cannot read 1 MiB of {name}; give an empty disk"))?;
    ensure!(
        begin.iter().all(|byte| *byte == 0),
        "{name} is not empty; give a disk without data, which is overwritten"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_blank_disk_is_used() {
        let directory = Directory::new(&std::env::temp_dir()).unwrap();
        let path = directory.0.join("disk");
        let is_used = |content: &[u8]| {
            fs::write(&path, content).unwrap();
            expect_blank(&path).is_ok()
        };
        let mut content = vec![0; BLANK];
        assert!(is_used(&content) && !is_used(&content[1..]));
        content[1080] = 0x53;
        assert!(!is_used(&content));
    }
}
