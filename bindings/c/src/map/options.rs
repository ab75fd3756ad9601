// SPDX-License-Identifier: MIT OR Apache-2.0
//! The options of maps.

use std::time::Duration;

use sluice::Map;
use sluice::map::{DeleteOptions, Durability, SetOptions};

use crate::error::{Failure, Result};
use crate::input::{check_flags, has, milliseconds, options_of_c};
use crate::options::Channel;

/// A durability in struct sluice_map_options: the changes of the map are not stored.
pub const SLUICE_VOLATILE: u32 = 0;
/// The map survives a restart of the host: the daemon sluiced stores it. A change returns when it is stored.
pub const SLUICE_DURABLE: u32 = 1;
/// The daemon stores the map. Changes do not wait; the changes of `interval_ms` are stored together.
pub const SLUICE_DURABLE_INTERVAL: u32 = 2;

/// Changes of a durable map that would wait for room fail with -EAGAIN at once.
pub const SLUICE_DURABLE_REFUSE: u32 = 1;

/// A flag in struct sluice_change_options: only if the entry has the version `version`; 0: only if there is no entry.
pub const SLUICE_IF_VERSION: u32 = 1;
/// Of a durable map: the change does not wait until it is stored, nor for room.
pub const SLUICE_NOWAIT: u32 = 2;

/// The options of maps. All options apply to a map that the call creates; an existing map keeps its own.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct MapOptions {
    /// sizeof(struct sluice_map_options), as SLUICE_MAP_OPTIONS_INIT sets it.
    pub size: usize,
    pub channel: Channel,
    /// The most entries that the map may have. 0: only its bytes are limited.
    pub entries: u64,
    /// How many changes the map keeps for watchers. 0: 1024.
    pub events: u32,
    /// SLUICE_VOLATILE, SLUICE_DURABLE or SLUICE_DURABLE_INTERVAL.
    pub durability: u32,
    /// SLUICE_DURABLE_REFUSE.
    pub flags: u32,
    /// Of SLUICE_DURABLE_INTERVAL, in milliseconds up to an hour.
    pub interval_ms: u32,
    /// The limit of each wait for the store of a durable map. 0: 30 s.
    pub deadline_ms: u32,
    /// Zero.
    pub reserved_word: u32,
    /// Zero.
    pub reserved: [u64; 4],
}

/// The options of a set or a delete.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ChangeOptions {
    /// sizeof(struct sluice_change_options), as SLUICE_CHANGE_OPTIONS_INIT sets it.
    pub size: usize,
    /// SLUICE_IF_VERSION, SLUICE_NOWAIT.
    pub flags: u32,
    /// Zero.
    pub reserved_word: u32,
    /// With SLUICE_IF_VERSION.
    pub version: u64,
    /// Of a set: removes the entry after this time, in nanoseconds. 0: never.
    pub time_to_live_ns: u64,
    /// Zero.
    pub reserved: [u64; 2],
}

options_of_c! {
    MapOptions(112): reserved_word, reserved;
    ChangeOptions(48): reserved_word, reserved;
}

impl MapOptions {
    /// # Safety
    /// The scope is NULL or a text.
    pub unsafe fn named(&self, name: &[u8]) -> Result<sluice::map::Options> {
        // SAFETY: as the caller guarantees.
        let map = unsafe { self.channel.apply(Map::named(name)) }?
            .entries(self.entries)
            .events(self.events);
        Ok(match self.durability()? {
            Some(durability) => map.durable(durability),
            None => map,
        })
    }

    fn durability(&self) -> Result<Option<Durability>> {
        let interval = Duration::from_millis(self.interval_ms.into());
        let durability = match (self.durability, self.interval_ms) {
            (SLUICE_VOLATILE, 0) if self.flags == 0 && self.deadline_ms == 0 => return Ok(None),
            (SLUICE_DURABLE, 0) => Durability::always(),
            (SLUICE_DURABLE_INTERVAL, 1..) => Durability::interval(interval),
            _ => {
                return Err(Failure::invalid(
                    c"invalid durability of a map",
                    c"set interval_ms only with SLUICE_DURABLE_INTERVAL, and times and flags only of a durable map",
                ));
            }
        };
        check_flags(self.flags, SLUICE_DURABLE_REFUSE)?;
        let durability = durability.refuse(has(self.flags, SLUICE_DURABLE_REFUSE));
        Ok(Some(match milliseconds(self.deadline_ms) {
            Some(deadline) => durability.deadline(deadline),
            None => durability,
        }))
    }
}

/// What a change requires, of its own options or of an operation in a batch.
#[derive(Clone, Copy)]
pub struct Change {
    pub flags: u32,
    pub version: u64,
    pub time_to_live_ns: u64,
}

impl Change {
    pub fn set(self) -> Result<SetOptions> {
        check_flags(self.flags, SLUICE_IF_VERSION | SLUICE_NOWAIT)?;
        let mut options = SetOptions::new().nowait(has(self.flags, SLUICE_NOWAIT));
        if has(self.flags, SLUICE_IF_VERSION) {
            options = options.if_version(self.version);
        }
        if self.time_to_live_ns != 0 {
            options = options.time_to_live(Duration::from_nanos(self.time_to_live_ns));
        }
        Ok(options)
    }

    pub fn delete(self) -> Result<DeleteOptions> {
        check_flags(self.flags, SLUICE_IF_VERSION | SLUICE_NOWAIT)?;
        if self.time_to_live_ns != 0 {
            let message = c"a delete has no time to live";
            return Err(Failure::invalid(message, c"leave it zero"));
        }
        let options = DeleteOptions::new().nowait(has(self.flags, SLUICE_NOWAIT));
        Ok(match has(self.flags, SLUICE_IF_VERSION) {
            true => options.if_version(self.version),
            false => options,
        })
    }
}

impl From<ChangeOptions> for Change {
    fn from(options: ChangeOptions) -> Self {
        Self {
            flags: options.flags,
            version: options.version,
            time_to_live_ns: options.time_to_live_ns,
        }
    }
}
