// SPDX-License-Identifier: MIT OR Apache-2.0

use std::os::fd::OwnedFd;

use sluice_abi::{self as abi, map};

use super::durability::Durability;
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
    durability: Option<Durability>,
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

    /// The map is durable: the daemon sluiced stores its changes, and restores it after a restart of the host. An open with
    /// [`create`](OpenOptions::create) then asks the daemon for a map that the module does not have, up to the
    /// [deadline](Durability::deadline): if one of this name is stored in the cgroup of this path, it is restored with its entries and its
    /// own options. A durable map exists until it is unlinked, as if it were [persistent](OpenOptions::persistent).
    ///
    /// An open without this option finds a durable map that the module has, but does not ask the daemon.
    ///
    /// ```no_run
    /// use sluice::map::{Durability, Options};
    ///
    /// let jobs = sluice::Channel::map("jobs")?;
    /// let map = Options::new().durable(Durability::always()).open(&jobs.options().create(true))?;
    /// map.set("4711", b"queued")?; // stored when it returns
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn durable(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
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
        let opened = open.map(access, self.capacity, &params);
        opened.map_err(|error| match self.durability {
            Some(_) => durable_open_error(error, open.is_exclusive()),
            None => open_error(error),
        })
    }

    fn params(&self) -> Result<map::Params, OpenError> {
        let events = match self.events {
            0 => 0,
            1..=map::EVENTS_MAX => self.events.next_power_of_two(),
            _ => return Err(OpenError::InvalidOptions),
        };
        let params = map::Params {
            entries: self.entries,
            events,
            ..map::Params::default()
        };
        match self.durability {
            Some(durability) => durability.apply(params).ok_or(OpenError::InvalidOptions),
            None => Ok(params),
        }
    }
}

fn open_error(error: Error) -> OpenError {
    match errno(&error) {
        Some(libc::EINVAL) => OpenError::InvalidOptions,
        _ => error.into(),
    }
}

fn durable_open_error(error: Error, exclusive: bool) -> OpenError {
    match (&error, errno(&error)) {
        (Error::AlreadyExists { name, .. }, _) if !exclusive => {
            OpenError::NotDurable { name: name.clone() }
        }
        (Error::ScopeQuotaExceeded { .. } | Error::UserQuotaExceeded { .. }, _) => {
            OpenError::NoSpace
        }
        (_, Some(libc::EAGAIN)) => OpenError::WouldBlock,
        (_, Some(libc::EINTR)) => OpenError::Interrupted,
        // The parameters of a durable map are longer.
        (_, Some(libc::E2BIG)) => OpenError::Open(Error::ModuleTooOld {
            missing: "durable maps",
        }),
        _ => open_error(error),
    }
}

fn errno(error: &Error) -> Option<i32> {
    match error {
        Error::Io { source, .. } => source.raw_os_error(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
    fn only_a_durable_map_has_flags_and_times() {
        let params = |options: Options| options.params().map(|all| (all.flags, all.deadline_ms));
        assert_eq!(params(Options::new()).unwrap(), (0, 0));
        let second = Duration::from_secs(1);
        let durable = Options::new().durable(Durability::always().deadline(second));
        assert_eq!(params(durable).unwrap(), (map::DURABLE, 1000));
        let long = Options::new().durable(Durability::interval(Duration::MAX));
        assert!(matches!(params(long), Err(OpenError::InvalidOptions)));
    }

    #[test]
    fn a_durable_open_has_errors_of_its_own() {
        let io = |errno| Error::Io {
            what: "opening".to_owned(),
            source: std::io::Error::from_raw_os_error(errno),
        };
        let exists = || Error::AlreadyExists {
            kind: crate::Kind::Map,
            name: "jobs".to_owned(),
            scope: "/".to_owned(),
        };
        let full = Error::ScopeQuotaExceeded {
            what: "opening".to_owned(),
        };
        for (error, word) in [
            (exists(), "'jobs' exists, and is not durable"),
            (full, "or the store"),
            (io(libc::EAGAIN), "blocking open"),
            (io(libc::EINTR), "without 'exclusive'"),
            (io(libc::E2BIG), "durable maps"),
            (io(libc::EINVAL), "invalid options"),
        ] {
            let text = crate::explain(&durable_open_error(error, false));
            assert!(text.contains(word), "{text}");
        }
        let exclusive = durable_open_error(exists(), true);
        assert!(matches!(
            exclusive,
            OpenError::Open(Error::AlreadyExists { .. })
        ));
    }

    #[test]
    fn the_capacity_is_that_of_the_map() {
        let channel = crate::Channel::map("sessions").unwrap();
        let error = Options::new().create(&channel.options().capacity(4096));
        assert!(matches!(error, Err(OpenError::UnsupportedOption { .. })));
    }
}
