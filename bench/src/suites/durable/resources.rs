// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the measurements of the suite share: the disk, the daemon, and the stores, all made when they are first needed.

use std::cell::{OnceCell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;

use anyhow::{Context, Result};

use super::daemon::Daemon;
use super::disk::Disk;
use crate::suites::map::store::{self, Store};
use crate::suites::map::suite::Way;
use crate::suites::plan::Plan;

pub struct Resources {
    // Before the daemon, which is told to delete them, and the daemon before the disk.
    stores: RefCell<Vec<(&'static str, Rc<dyn Store>)>>,
    daemon: OnceCell<Rc<Daemon>>,
    disk: OnceCell<Disk>,
    pub common: store::Resources,
    pub device: Option<PathBuf>,
    pub sluiced: PathBuf,
}

impl Resources {
    pub fn new(plan: &Plan, common: store::Resources) -> Self {
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

    /// The store of this mechanism, which is created once.
    pub fn kept(&self, way: &Way<Self>, keys: u64) -> Result<Rc<dyn Store>> {
        let mut stores = self.stores.borrow_mut();
        if let Some((_, store)) = stores.iter().find(|(name, _)| *name == way.name) {
            return Ok(Rc::clone(store));
        }
        let store = (way.create)(keys, self)?;
        store.settle()?;
        stores.push((way.name, Rc::clone(&store)));
        Ok(store)
    }

    /// Removes the stores of these mechanisms.
    pub fn drop_stores(&self, names: &[&str]) {
        self.stores
            .borrow_mut()
            .retain(|(name, _)| !names.contains(name));
    }
}
