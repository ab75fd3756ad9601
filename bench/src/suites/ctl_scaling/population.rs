// SPDX-License-Identifier: MIT OR Apache-2.0
//! The channels and scopes among which operations are measured: many names in one scope, or many scopes with one name
//! each. All of it is removed with the cgroups.

use std::cell::{Cell, LazyCell};
use std::fs::File;
use std::rc::Rc;

use anyhow::{Context, Result, anyhow};
use fastrand::Rng;
use sluice_testkit::cgroup::{Cgroup, Tree};

use super::scope::{Scope, open_node};

/// Pseudo-random numbers, the same in every run.
pub fn reproducible_rng() -> Rng {
    Rng::with_seed(1)
}

/// Created at first use, so that it does not affect earlier measurements.
pub struct Lazy<T>(LazyCell<Result<T>, Box<dyn FnOnce() -> Result<T>>>);

impl<T> Lazy<T> {
    pub fn new(create: impl FnOnce() -> Result<T> + 'static) -> Self {
        Self(LazyCell::new(Box::new(create)))
    }

    pub fn get(&self) -> Result<&T> {
        self.0.as_ref().map_err(|error| anyhow!("{error:#}"))
    }
}

/// One scope with many persistent channels.
pub struct Names {
    pub scope: Scope,
    pub names: Vec<String>,
}

impl Names {
    /// Creates the names in random order, so that their order in memory is independent of their order in the list.
    pub fn create(tree: &Tree, count: usize) -> Result<Self> {
        let scope = Scope {
            node: open_node()?,
            directory: tree.create_cgroup()?.directory()?,
        };
        let names: Vec<String> = (0..count).map(|n| format!("channel-{n:05}")).collect();
        let mut order: Vec<&String> = names.iter().collect();
        reproducible_rng().shuffle(&mut order);
        for name in order {
            scope.create(name).with_context(|| {
                format!("a scope cannot have {count} names; check the module parameter scope_max_channels")
            })?;
        }
        Ok(Self { scope, names })
    }
}

/// Cgroups, the first of which contain a channel and therefore have a scope.
pub struct Scopes {
    node: Rc<File>,
    cgroups: Vec<Cgroup>,
    count: Cell<usize>,
}

impl Scopes {
    pub const NAME: &'static str = "channel";

    pub fn create(tree: &Tree, count: usize) -> Result<Self> {
        let cgroups = (0..count).map(|_| tree.create_cgroup());
        Ok(Self {
            node: open_node()?,
            cgroups: cgroups.collect::<Result<_>>()?,
            count: Cell::new(0),
        })
    }

    pub fn scope(&self, number: usize) -> Result<Scope> {
        Ok(Scope {
            node: Rc::clone(&self.node),
            directory: self.cgroups[number].directory()?,
        })
    }

    /// Sets the number of scopes. There is one table of scopes for all, so their number changes between rounds.
    pub fn set_count(&self, count: usize) -> Result<()> {
        while self.count.get() < count {
            self.scope(self.count.get())?.create(Self::NAME)?;
            self.count.set(self.count.get() + 1);
        }
        while self.count.get() > count {
            self.count.set(self.count.get() - 1);
            self.scope(self.count.get())?.unlink(Self::NAME)?;
        }
        Ok(())
    }
}
