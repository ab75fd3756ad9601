// SPDX-License-Identifier: MIT OR Apache-2.0
//! The disk on which all stores of the suite have their files.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use nix::mount::{MsFlags, mount, umount};

use crate::mechanisms::temp_paths::Directory;

/// What must be zero, so that no file system is lost by mistake: the superblocks of ext4 and others are in it.
const BLANK: usize = 1 << 20;

/// An ext4 file system, mounted until it is dropped.
pub struct Disk {
    point: Directory,
}

impl Disk {
    /// Makes the file system on an empty disk.
    pub fn mount(device: &Path) -> Result<Self> {
        expect_blank(device)?;
        make_file_system(device)?;
        let point = Directory::new(&std::env::temp_dir())?;
        let none: Option<&Path> = None;
        mount(
            Some(device),
            &point.0,
            Some("ext4"),
            MsFlags::MS_NOATIME,
            none,
        )
        .with_context(|| format!("cannot mount {}; see 'dmesg | tail'", device.display()))?;
        Ok(Self { point })
    }

    pub fn path(&self) -> &Path {
        &self.point.0
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let path = self.path();
        if let Err(error) = umount(path) {
            let path = path.display();
            eprintln!("cannot unmount {path}: {error}; run 'umount {path}'");
        }
    }
}

fn expect_blank(device: &Path) -> Result<()> {
    let mut begin = vec![0; BLANK];
    File::open(device)
        .and_then(|mut file| file.read_exact(&mut begin))
        .with_context(|| {
            format!(
                "cannot read 1 MiB of {}; give an empty disk",
                device.display()
            )
        })?;
    ensure!(
        begin.iter().all(|byte| *byte == 0),
        "{} is not empty; give a disk without data, which is overwritten",
        device.display()
    );
    Ok(())
}

/// Complete from the beginning: one that is initialized later writes while it is mounted.
fn make_file_system(device: &Path) -> Result<()> {
    let made = Command::new("mkfs.ext4")
        .args(["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"])
        .arg(device)
        .status()
        .context("cannot start mkfs.ext4; install e2fsprogs")?;
    ensure!(
        made.success(),
        "mkfs.ext4 {} failed: {made}",
        device.display()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn only_a_blank_disk_is_used() {
        let directory = Directory::new(&std::env::temp_dir()).unwrap();
        let path = directory.0.join("disk");
        fs::write(&path, vec![0; BLANK]).unwrap();
        expect_blank(&path).unwrap();
        let mut used = vec![0; BLANK];
        used[1080] = 0x53;
        fs::write(&path, used).unwrap();
        assert!(expect_blank(&path).is_err());
        fs::write(&path, "short").unwrap();
        assert!(expect_blank(&path).is_err());
    }
}
