// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the operations are done among: many names in one scope, or many scopes with a name in each. All of it goes with the
//! cgroups, whatever happens.

use std::cell::{Cell, OnceCell};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context, Result};

use super::ctl::Ctl;
use crate::harness::cgroup::Tree;

/// Numbers that look random and are the same in every run.
pub struct Picks(u64);

impl Picks {
    pub fn new() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }

    pub fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) % end as u64) as usize
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            items.swap(end, self.below(end + 1));
        }
    }
}

/// Made when it is first needed: until then it is in nobody's way.
pub struct Late<T> {
    make: Box<dyn Fn() -> Result<T>>,
    made: OnceCell<T>,
}

impl<T> Late<T> {
    pub fn new(make: impl Fn() -> Result<T> + 'static) -> Self {
        Self {
            make: Box::new(make),
            made: OnceCell::new(),
        }
    }

    pub fn get(&self) -> Result<&T> {
        if let Some(made) = self.made.get() {
            return Ok(made);
        }
        let made = (self.make)()?;
        Ok(self.made.get_or_init(|| made))
    }
}

fn open_directory(cgroup: &Path) -> Result<File> {
    File::open(cgroup).with_context(|| format!("cannot open the cgroup {}", cgroup.display()))
}

/// One scope with many persistent channels.
pub struct Names {
    pub scope: File,
    pub names: Vec<String>,
}

impl Names {
    /// In no order, as they come where many make them: their places in memory say nothing of their places in the list.
    pub fn gather(tree: &Tree, count: usize) -> Result<Self> {
        let ctl = Ctl::new()?;
        let scope = open_directory(&tree.fresh()?)?;
        let names: Vec<String> = (0..count).map(|n| format!("channel-{n:05}")).collect();
        let mut order: Vec<&String> = names.iter().collect();
        Picks::new().shuffle(&mut order);
        for name in order {
            ctl.create(&scope, name).with_context(|| {
                format!("cannot make channel {name} of {count}; is scope_max_channels of the module lower?")
            })?;
        }
        Ok(Self { scope, names })
    }
}

/// Cgroups of which the first few hold a channel, and so have a scope.
pub struct Scopes {
    cgroups: Vec<PathBuf>,
    inhabited: Cell<usize>,
}

impl Scopes {
    pub const NAME: &'static str = "channel";

    pub fn gather(tree: &Rc<Tree>, count: usize) -> Result<Self> {
        let cgroups = (0..count).map(|_| tree.fresh()).collect::<Result<_>>()?;
        Ok(Self {
            cgroups,
            inhabited: Cell::new(0),
        })
    }

    pub fn directory(&self, number: usize) -> Result<File> {
        open_directory(&self.cgroups[number])
    }

    /// From now on so many have a scope. The table of scopes is one for all, so their number is changed between turns.
    pub fn inhabit(&self, ctl: &Ctl, count: usize) -> Result<()> {
        while self.inhabited.get() < count {
            let scope = self.directory(self.inhabited.get())?;
            ctl.create(&scope, Self::NAME)
                .context("cannot make a channel in each scope")?;
            self.inhabited.set(self.inhabited.get() + 1);
        }
        while self.inhabited.get() > count {
            self.inhabited.set(self.inhabited.get() - 1);
            let scope = self.directory(self.inhabited.get())?;
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
    fn a_shuffle_loses_nothing_and_is_the_same_each_time() {
        let shuffled = || {
            let mut items: Vec<usize> = (0..100).collect();
            Picks::new().shuffle(&mut items);
            items
        };
        let mut items = shuffled();
        assert_eq!(items, shuffled());
        assert!(!items.is_sorted());
        items.sort_unstable();
        assert!(items.into_iter().eq(0..100));
    }

    #[test]
    fn what_comes_late_is_made_once() {
        let times = Rc::new(Cell::new(0));
        let counted = Rc::clone(&times);
        let late = Late::new(move || {
            counted.set(counted.get() + 1);
            Ok(7)
        });
        assert_eq!(times.get(), 0);
        assert_eq!((*late.get().unwrap(), *late.get().unwrap()), (7, 7));
        assert_eq!(times.get(), 1);
    }
}
