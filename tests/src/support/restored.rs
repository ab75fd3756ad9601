// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stored maps, and a keeper that restores them.

use std::os::fd::OwnedFd;

use anyhow::{Context as _, Result};

use super::check::expect;
use super::ctl::OWN;
use super::keeper::{Keeper, LIMIT, Map, Stored, stored_map};
use super::map::{Maps, NAME};

pub const KEY: &[u8] = b"key";
/// The last number of a map that is restored.
pub const SEQUENCE: u64 = 1000;

/// A stored map of root.
pub fn stored() -> Map {
    stored_map(NAME)
}

/// The keeper begins to restore it in the own cgroup; the stream.
pub fn begin(keeper: &Keeper, map: &Map) -> Result<u64> {
    let created = keeper.create_at(0, OWN, map, SEQUENCE, LIMIT);
    created.context("CREATE")
}

/// The keeper restores it in the own cgroup; the stream.
pub fn restore(keeper: &Keeper, map: &Map, entries: &[Stored]) -> Result<u64> {
    let stream = begin(keeper, map)?;
    let count = keeper.restore(stream, entries).context("RESTORE")?;
    expect("restored", count, entries.len())?;
    keeper.ready(stream).context("READY")?;
    Ok(stream)
}

/// A restored map with these entries, and an endpoint in non-blocking mode.
pub struct Restored {
    pub end: OwnedFd,
    pub stream: u64,
    pub maps: Maps,
    pub keeper: Keeper,
}

pub fn restored(entries: &[Stored]) -> Result<Restored> {
    restored_as(&stored(), entries)
}

pub fn restored_as(map: &Map, entries: &[Stored]) -> Result<Restored> {
    let (keeper, maps) = (Keeper::new()?, Maps::new()?);
    let stream = restore(&keeper, map, entries)?;
    Ok(Restored {
        end: maps.attach()?,
        stream,
        maps,
        keeper,
    })
}
