// SPDX-License-Identifier: MIT OR Apache-2.0
//! Listing in pages.

use anyhow::{Context, Result, bail, ensure};
use sluice_abi::{ChannelInfo, LIST_MAX};

use super::ctl::Ctl;
use super::population::Names;
use super::timed;

/// Divides every number of names, so that every page is full and only the number of names varies.
pub const SHORT: usize = 10;

/// A position in the list.
pub struct Pages {
    entries: [ChannelInfo; LIST_MAX],
    after: Option<ChannelInfo>,
}

impl Default for Pages {
    fn default() -> Self {
        Self {
            entries: [ChannelInfo::EMPTY; LIST_MAX],
            after: None,
        }
    }
}

impl Pages {
    /// Reads the next page, or the first one after the end was reached.
    fn next(&mut self, ctl: &Ctl, population: &Names, most: usize) -> Result<usize> {
        let entries = &mut self.entries[..most];
        let count = ctl
            .page(&population.scope, self.after.as_ref(), entries)
            .context("cannot list the channels")?;
        self.after = count.checked_sub(1).map(|last| entries[last]);
        Ok(count)
    }

    /// Lists all channels; returns the time per name.
    pub fn list_all(&mut self, ctl: &Ctl, population: &Names) -> Result<u64> {
        let (ns, listed) = timed(|| -> Result<usize> {
            let mut listed = 0;
            loop {
                match self.next(ctl, population, LIST_MAX)? {
                    0 => return Ok(listed),
                    count => listed += count,
                }
            }
        });
        let listed = listed?;
        ensure!(
            listed == population.names.len(),
            "the list has {listed} channels instead of {}",
            population.names.len()
        );
        Ok(ns / listed as u64)
    }

    /// Reads the next page; returns the time per name.
    pub fn next_short(&mut self, ctl: &Ctl, population: &Names) -> Result<u64> {
        loop {
            let (ns, count) = timed(|| self.next(ctl, population, SHORT));
            match count? {
                0 => continue,
                SHORT => return Ok(ns / SHORT as u64),
                count => bail!("a page of {SHORT} had {count} channels"),
            }
        }
    }

    /// Fails unless the list consists of all names in order.
    pub fn expect_all(&mut self, ctl: &Ctl, population: &Names) -> Result<()> {
        let mut expected = population.names.iter().map(String::as_bytes);
        loop {
            let count = self.next(ctl, population, LIST_MAX)?;
            if count == 0 {
                break;
            }
            for name in self.entries[..count].iter().map(ChannelInfo::name) {
                ensure!(
                    expected.next() == Some(name),
                    "the list has '{}' at the wrong position among {} names",
                    String::from_utf8_lossy(name),
                    population.names.len()
                );
            }
        }
        let missing = expected.count();
        ensure!(missing == 0, "the list lacks the last {missing} names");
        Ok(())
    }
}
