// SPDX-License-Identifier: MIT OR Apache-2.0

use std::os::fd::OwnedFd;

use sluice_abi::{self as abi, map};

use super::endpoint::Map;
use super::error::OpenError;
use crate::channel::OpenOptions;
use crate::error::Error;

/// The options to open a map with. The scope, the name, the permission bits and persistence are those of
/// [`Channel::map`](crate::Channel::map) and of its [`OpenOptions`]. The limits are those of a map that the open creates; an existing
/// one keeps its own.
///
/// ```no_run
/// use sluice::map::Options;
///
/// let cache = sluice::Channel::map("cache")?;
/// let options = Options::new().capacity(64 << 20).entries(100_000);
/// let map = options.open(&cache.options().create(true).mode(0o660))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Options {
    capacity: u64,
    entries: u64,
    events: u32,
}

impl Options {
    pub fn new() -> Self {
        Self::default()
    }

    /// The bytes that the map may use, up to 64 GiB; 4 MiB by default. Those are the bytes of keys and values, about 200 per entry, and
    /// about 32 per [event](Self::events).
    pub fn capacity(mut self, bytes: u64) -> Self {
        self.capacity = bytes;
        self
    }

    /// The most entries that the map may have. By default, and with 0, only its bytes are limited.
    pub fn entries(mut self, entries: u64) -> Self {
        self.entries = entries;
        self
    }

    /// How many changes the map keeps for watchers, rounded up to a power of two of up to 65,536; 1024 by default. A watcher that is
    /// further behind misses changes.
    pub fn events(mut self, events: u32) -> Self {
        self.events = events;
        self
    }

    /// Creates a map that exists until it is removed. Fails if it exists.
    pub fn create(&self, open: &OpenOptions<'_>) -> Result<(), OpenError> {
        let open = open.clone().create(true).exclusive(true).persistent(true);
        self.endpoint(&open, abi::OPEN_WRITE).map(drop)
    }

    /// Opens the map to read and to change it.
    pub fn open(&self, open: &OpenOptions<'_>) -> Result<Map, OpenError> {
        let endpoint = self.endpoint(open, abi::OPEN_READ | abi::OPEN_WRITE)?;
        Ok(Map::new(endpoint))
    }

    /// Opens the map to get entries and to watch it, for which the permission to read suffices.
    pub fn open_reader(&self, open: &OpenOptions<'_>) -> Result<Map, OpenError> {
        Ok(Map::new(self.endpoint(open, abi::OPEN_READ)?))
    }

    /// Opens the map to set and delete entries, for which the permission to write suffices.
    pub fn open_writer(&self, open: &OpenOptions<'_>) -> Result<Map, OpenError> {
        Ok(Map::new(self.endpoint(open, abi::OPEN_WRITE)?))
    }

    fn endpoint(&self, open: &OpenOptions<'_>, access: u32) -> Result<OwnedFd, OpenError> {
        if open.has_capacity() {
            return Err(OpenError::UnsupportedOption {
                option: "OpenOptions::capacity",
                instead: "map::Options::capacity",
            });
        }
        let params = self.params()?;
        open.map(access, self.capacity, &params).map_err(open_error)
    }

    fn params(&self) -> Result<map::Params, OpenError> {
        let events = match self.events {
            0 => 0,
            1..=map::EVENTS_MAX => self.events.next_power_of_two(),
            _ => return Err(OpenError::InvalidOptions),
        };
        Ok(map::Params {
            entries: self.entries,
            events,
            ..map::Params::default()
        })
    }
}

fn open_error(error: Error) -> OpenError {
    match &error {
        Error::Io { source, .. } if source.raw_os_error() == Some(libc::EINVAL) => {
            OpenError::InvalidOptions
        }
        _ => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_events_is_a_power_of_two() {
        let events = |number| Options::new().events(number).params().map(|all| all.events);
        for (given, expected) in [(0, 0), (1, 1), (1000, 1024), (65_536, 65_536)] {
            assert_eq!(events(given).unwrap(), expected);
        }
        for many in [65_537, u32::MAX] {
            assert!(matches!(events(many), Err(OpenError::InvalidOptions)));
        }
    }

    #[test]
    fn the_capacity_is_that_of_the_map() {
        let channel = crate::Channel::map("sessions").unwrap();
        let error = Options::new().create(&channel.options().capacity(4096));
        assert!(matches!(error, Err(OpenError::UnsupportedOption { .. })));
    }
}
