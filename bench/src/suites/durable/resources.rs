// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the measurements of the suite share: the disk of all files, the daemon, and the stores, all made when they are first
//! needed.

use std::cell::{OnceCell, RefCell};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use anyhow::{Context, Result, ensure};
use nix::mount::{MsFlags, mount, umount};
use tempfile::TempDir;

use super::daemon::Daemon;
use crate::mechanisms::temp_paths::private_directory;
use crate::suites::map::StoreMechanism;
use crate::suites::map::store::{Store, StoreResources};
use crate::suites::plan::Plan;

pub struct DurableResources {
    // Before the daemon, which is told to delete them, and the daemon before the disk.
    stores: RefCell<Vec<(&'static str, Rc<dyn Store>)>>,
    daemon: OnceCell<Rc<Daemon>>,
    disk: OnceCell<Disk>,
    pub common: StoreResources,
    pub device: Option<PathBuf>,
    pub sluiced: PathBuf,
}

impl DurableResources {
    pub fn new(plan: &Plan, common: StoreResources) -> Self {
        Self {
            stores: RefCell::default(),
            daemon: OnceCell::new(),
            disk: OnceCell::new(),
            common,
            device: plan.disk.clone(),
            sluiced: plan.sluiced.clone(),
        }
    }

    pub fn disk(&self) -> Result<&Disk> {
        if self.disk.get().is_none() {
            let device = self.device.as_deref().context("there is no disk")?;
            let _ = self.disk.set(Disk::mount(device)?);
        }
        self.disk.get().context("the disk is not mounted")
    }

    pub fn daemon(&self) -> Result<&Rc<Daemon>> {
        if self.daemon.get().is_none() {
            let folder = self.disk()?.folder("sluiced")?;
            let daemon = Daemon::start(&self.sluiced, &folder, &self.common.confinement)?;
            let _ = self.daemon.set(Rc::new(daemon));
        }
        self.daemon.get().context("sluiced was not started")
    }

    pub fn kept(&self, mechanism: &StoreMechanism<Self>, keys: u64) -> Result<Rc<dyn Store>> {
        let mut stores = self.stores.borrow_mut();
        if let Some((_, store)) = stores.iter().find(|(name, _)| *name == mechanism.name) {
            return Ok(Rc::clone(store));
        }
        let store = (mechanism.create)(keys, self)?;
        store.settle()?;
        stores.push((mechanism.name, Rc::clone(&store)));
        Ok(store)
    }

    pub fn drop_stores(&self, names: &[&str]) {
        let mut stores = self.stores.borrow_mut();
        stores.retain(|(name, _)| !names.contains(name));
    }
}

/// What must be zero, so that no file system is lost by mistake: the superblocks of ext4 and others are in it.
const BLANK: usize = 1 << 20;

/// An ext4 file system, mounted until it is dropped.
pub struct Disk(TempDir);

impl Disk {
    fn mount(device: &Path) -> Result<Self> {
        let name = device.display();
        expect_blank(device)?;
        // Complete from the beginning: one that is initialized later writes while it is mounted.
        let made = Command::new("mkfs.ext4")
            .args(["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"])
            .arg(device)
            .status()
            .context("cannot start mkfs.ext4; install e2fsprogs")?;
        ensure!(made.success(), "mkfs.ext4 {name} failed: {made}");
        let point = private_directory(&std::env::temp_dir())?;
        let (flags, options) = (MsFlags::MS_NOATIME, None::<&str>);
        mount(Some(device), point.path(), Some("ext4"), flags, options)
            .with_context(|| format!("cannot mount {name}; see 'dmesg | tail'"))?;
        Ok(Self(point))
    }

    pub fn folder(&self, name: &str) -> Result<PathBuf> {
        let path = self.0.path().join(name);
        fs::create_dir(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(path)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Err(error) = umount(self.0.path()) {
            let path = self.0.path().display();
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
        let directory = private_directory(&std::env::temp_dir()).unwrap();
        let path = directory.path().join("disk");
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
