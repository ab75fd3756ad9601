// SPDX-License-Identifier: MIT OR Apache-2.0
//! The channels and scopes among which operations are measured: many names in one scope, or many scopes with one name
//! each. All of it is removed with the cgroups.

use std::cell::{Cell, OnceCell};
use std::fs::File;
use std::rc::Rc;

use anyhow::{Context, Result};
use fastrand::Rng;
use sluice_testkit::cgroup::{Cgroup, Tree};

use super::ctl::Ctl;

/// Pseudo-random numbers, the same in every run.
pub fn reproducible_rng() -> Rng {
    Rng::with_seed(1)
}

/// Created at first use, so that it does not affect earlier measurements.
pub struct Lazy<T> {
    create: Box<dyn Fn() -> Result<T>>,
    value: OnceCell<T>,
}

impl<T> Lazy<T> {
    pub fn new(create: impl Fn() -> Result<T> + 'static) -> Self {
        Self {
            create: Box::new(create),
            value: OnceCell::new(),
        }
    }

    pub fn get(&self) -> Result<&T> {
        if let Some(value) = self.value.get() {
            return Ok(value);
        }
        let value = (self.create)()?;
        Ok(self.value.get_or_init(|| value))
    }
}

/// One scope with many persistent channels.
pub struct Names {
    pub scope: File,
    pub names: Vec<String>,
}

impl Names {
    /// Creates the names in random order, so that their order in memory is independent of their order in the list.
    pub fn create(tree: &Tree, count: usize) -> Result<Self> {
        let ctl = Ctl::new()?;
        let scope = tree.create_cgroup()?.directory()?;
        let names: Vec<String> = (0..count).map(|n| format!("channel-{n:05}")).collect();
        let mut order: Vec<&String> = names.iter().collect();
        reproducible_rng().shuffle(&mut order);
        for name in order {
            ctl.create(&scope, name).with_context(|| {
                format!("cannot create channel {name} of {count}; check the module parameter scope_max_channels")
            })?;
        }
        Ok(Self { scope, names })
    }
}

/// Cgroups, the first of which contain a channel and therefore have a scope.
pub struct Scopes {
    cgroups: Vec<Cgroup>,
    count: Cell<usize>,
}

impl Scopes {
    pub const NAME: &'static str = "channel";

    pub fn create(tree: &Rc<Tree>, count: usize) -> Result<Self> {
        let cgroups = (0..count)
            .map(|_| tree.create_cgroup())
            .collect::<Result<_>>()?;
        Ok(Self {
            cgroups,
            count: Cell::new(0),
        })
    }

    pub fn directory(&self, number: usize) -> Result<File> {
        self.cgroups[number].directory()
    }

    /// Sets the number of scopes. There is one table of scopes for all, so their number changes between rounds.
    pub fn set_count(&self, ctl: &Ctl, count: usize) -> Result<()> {
        while self.count.get() < count {
            let scope = self.directory(self.count.get())?;
            ctl.create(&scope, Self::NAME)
                .context("cannot create a channel in each scope")?;
            self.count.set(self.count.get() + 1);
        }
        while self.count.get() > count {
            self.count.set(self.count.get() - 1);
            let scope = self.directory(self.count.get())?;
            ctl.unlink(&scope, Self::NAME)
                .context("cannot remove the channel of each scope")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lazy_value_is_created_once() {
        let times = Rc::new(Cell::new(0));
        let counted = Rc::clone(&times);
        let lazy = Lazy::new(move || {
            counted.set(counted.get() + 1);
            Ok(7)
        });
        assert_eq!(times.get(), 0);
        assert_eq!((*lazy.get().unwrap(), *lazy.get().unwrap()), (7, 7));
        assert_eq!(times.get(), 1);
    }
}
