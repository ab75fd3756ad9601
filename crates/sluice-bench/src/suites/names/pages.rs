// SPDX-License-Identifier: MIT OR Apache-2.0
//! Listing, page by page.

use anyhow::{Context, Result, bail, ensure};
use sluice_abi::{ChannelInfo, LIST_MAX};

use super::crowd::Names;
use super::ctl::Ctl;
use super::timed;

/// Divides every number of names, so that every page is full and costs the same but for how many names there are.
pub const SHORT: usize = 10;

/// A walk through the list.
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
    /// The next page of up to so many, or those from the beginning once the end was reached.
    fn next(&mut self, ctl: &Ctl, crowd: &Names, most: usize) -> Result<usize> {
        let entries = &mut self.entries[..most];
        let count = ctl
            .page(&crowd.scope, self.after.as_ref(), entries)
            .context("cannot list the channels")?;
        self.after = count.checked_sub(1).map(|last| entries[last]);
        Ok(count)
    }

    /// From the beginning to the end; the time that each name took.
    pub fn walk(&mut self, ctl: &Ctl, crowd: &Names) -> Result<u64> {
        let (ns, told) = timed(|| -> Result<usize> {
            let mut told = 0;
            loop {
                match self.next(ctl, crowd, LIST_MAX)? {
                    0 => return Ok(told),
                    count => told += count,
                }
            }
        });
        let told = told?;
        ensure!(
            told == crowd.names.len(),
            "the list tells of {told} channels, there are {}",
            crowd.names.len()
        );
        Ok(ns / told as u64)
    }

    /// The time that each name of the next page took.
    pub fn next_short(&mut self, ctl: &Ctl, crowd: &Names) -> Result<u64> {
        loop {
            let (ns, count) = timed(|| self.next(ctl, crowd, SHORT));
            match count? {
                0 => continue,
                SHORT => return Ok(ns / SHORT as u64),
                count => bail!("a page of {SHORT} had {count} channels"),
            }
        }
    }

    /// Fails unless all of them are told in order, and nothing else is.
    pub fn expect_all(&mut self, ctl: &Ctl, crowd: &Names) -> Result<()> {
        let mut expected = crowd.names.iter().map(String::as_bytes);
        loop {
            let count = self.next(ctl, crowd, LIST_MAX)?;
            if count == 0 {
                break;
            }
            for told in self.entries[..count].iter().map(ChannelInfo::name) {
                ensure!(
                    expected.next() == Some(told),
                    "the list tells of '{}', which is not the next of {} names",
                    String::from_utf8_lossy(told),
                    crowd.names.len()
                );
            }
        }
        let missed = expected.count();
        ensure!(missed == 0, "the list ended {missed} names early");
        Ok(())
    }
}
