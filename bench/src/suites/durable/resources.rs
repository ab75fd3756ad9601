// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the measurements of the suite share: the disk, the daemon, and the stores, all made when they are first needed.

use std::cell::{OnceCell, RefCell};
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context, Result, anyhow};
use sluice_testkit::cgroup::{Cgroup, Tree};

use super::daemon::Daemon;
use super::disk::Disk;
use super::{KEYS, Way};
use crate::harness::rounds::Skipped;
use crate::suites::map::store::Store;
use crate::suites::setup::Confinement;

/// A store whose values survive the end of its processes, except for a volatile map.
pub trait DurableStore: Store {
    /// Waits until all values are stored that were set.
    fn settle(&self) -> Result<()> {
        Ok(())
    }

    /// Whether its commits are those of sluiced.
    fn is_stored_by_daemon(&self) -> bool {
        false
    }
}

pub struct Resources {
    // Before the daemon, which is told to delete them.
    stores: RefCell<Vec<(&'static str, Rc<dyn DurableStore>)>>,
    environment: OnceCell<Environment>,
    /// The cgroups of maps, or why there are none.
    pub cgroups: Result<Rc<Tree>, Skipped>,
    /// The processors and the cgroup of every process.
    pub confinement: Confinement,
    pub disk: Option<PathBuf>,
    pub daemon: PathBuf,
}

/// The mounted disk, and the daemon with its store there.
pub struct Environment {
    // Before the disk.
    daemon: OnceCell<Daemon>,
    disk: Disk,
    program: PathBuf,
    confinement: Confinement,
}

impl Resources {
    pub fn new(
        cgroups: Result<Rc<Tree>, Skipped>,
        confinement: Confinement,
        disk: Option<PathBuf>,
        daemon: PathBuf,
    ) -> Self {
        Self {
            stores: RefCell::default(),
            environment: OnceCell::new(),
            cgroups,
            confinement,
            disk,
            daemon,
        }
    }

    pub fn environment(&self) -> Result<&Environment> {
        if let Some(environment) = self.environment.get() {
            return Ok(environment);
        }
        let device = self.disk.as_deref().context("there is no disk")?;
        let environment = Environment {
            daemon: OnceCell::new(),
            disk: Disk::mount(device)?,
            program: self.daemon.clone(),
            confinement: self.confinement.clone(),
        };
        Ok(self.environment.get_or_init(|| environment))
    }

    /// The store of this way, which stays filled from round to round.
    pub fn store(&self, way: &Way) -> Result<Rc<dyn DurableStore>> {
        let mut stores = self.stores.borrow_mut();
        if let Some((_, store)) = stores.iter().find(|(name, _)| *name == way.name) {
            return Ok(Rc::clone(store));
        }
        let store: Rc<dyn DurableStore> = (way.create)(KEYS, self)?.into();
        store.settle()?;
        stores.push((way.name, Rc::clone(&store)));
        Ok(store)
    }

    /// Removes all durable maps.
    pub fn drop_durable_maps(&self) {
        let mut stores = self.stores.borrow_mut();
        stores.retain(|(_, store)| !store.is_stored_by_daemon());
    }

    pub fn create_cgroup(&self) -> Result<Cgroup> {
        let tree = self.cgroups.as_ref();
        tree.map_err(|skip| anyhow!("{}", skip.reason))?
            .create_cgroup()
    }
}

impl Environment {
    pub fn daemon(&self) -> Result<&Daemon> {
        if let Some(daemon) = self.daemon.get() {
            return Ok(daemon);
        }
        let folder = self.folder("sluiced")?;
        let daemon = Daemon::start(&self.program, &folder, &self.confinement)?;
        Ok(self.daemon.get_or_init(|| daemon))
    }

    pub fn disk(&self) -> &Path {
        self.disk.path()
    }

    /// A new folder on the disk.
    pub fn folder(&self, name: &str) -> Result<PathBuf> {
        let path = self.disk().join(name);
        fs::create_dir(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(path)
    }
}
