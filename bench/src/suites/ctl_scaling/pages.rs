// SPDX-License-Identifier: MIT OR Apache-2.0
//! Listing in pages.

use anyhow::{Result, ensure};
use sluice_abi::{ChannelInfo, LIST_MAX};

use super::population::Names;
use super::scope::timed;

/// Divides every number of names, so that every page is full and only the number of names varies.
pub const SHORT: usize = 10;

/// A position in the list.
pub struct Pages {
    entries: [ChannelInfo; LIST_MAX],
    after: Option<ChannelInfo>,
}

impl Pages {
    pub fn new() -> Self {
        Self {
            entries: [ChannelInfo::EMPTY; LIST_MAX],
            after: None,
        }
    }

    /// The next page, or the first one after the end, which is an empty page.
    fn next(&mut self, names: &Names, most: usize) -> Result<&[ChannelInfo]> {
        let entries = &mut self.entries[..most];
        let count = names.scope.page(self.after.as_ref(), entries)?;
        self.after = count.checked_sub(1).map(|last| entries[last]);
        Ok(&entries[..count])
    }

    /// All pages, from the first one.
    fn visit(&mut self, names: &Names, mut visit: impl FnMut(&[ChannelInfo])) -> Result<()> {
        loop {
            match self.next(names, LIST_MAX)? {
                [] => return Ok(()),
                page => visit(page),
            }
        }
    }

    /// Lists all channels; returns the time per name.
    pub fn list_all(&mut self, names: &Names) -> Result<u64> {
        let (mut listed, expected) = (0, names.names.len());
        let (ns, ()) = timed(|| self.visit(names, |page| listed += page.len()))?;
        ensure!(
            listed == expected,
            "the list has {listed} channels instead of {expected}"
        );
        Ok(ns / listed as u64)
    }

    /// Reads the next page that is not empty; returns the time per name.
    pub fn next_short(&mut self, names: &Names) -> Result<u64> {
        loop {
            let (ns, count) = timed(|| Ok(self.next(names, SHORT)?.len()))?;
            if count > 0 {
                ensure!(count == SHORT, "a page of {SHORT} had {count} channels");
                return Ok(ns / SHORT as u64);
            }
        }
    }

    /// Fails unless the list consists of all names in order.
    pub fn expect_all(&mut self, names: &Names) -> Result<()> {
        let mut listed = Vec::new();
        let name = |channel: &ChannelInfo| channel.name().to_vec();
        self.visit(names, |page| listed.extend(page.iter().map(name)))?;
        let is_next = |(name, expected): &(&Vec<u8>, &String)| *name == expected.as_bytes();
        let right = listed.iter().zip(&names.names).take_while(is_next).count();
        ensure!(
            right == listed.len() && right == names.names.len(),
            "the list has {} channels, of which the first {right} are right, among {} names",
            listed.len(),
            names.names.len()
        );
        Ok(())
    }
}
