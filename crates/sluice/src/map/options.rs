// SPDX-License-Identifier: MIT OR Apache-2.0

use std::os::fd::OwnedFd;

use sluice_abi::{self as abi, map};
use sluice_table::Shape;

use super::durability::Durability;
use super::endpoint::Map;
use super::error::OpenError;
use super::info::MapInfo;
use crate::channel::Channel;
use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::options::{self, ChannelKind, Creatable, sealed};
use crate::shared::region::page_size;
use crate::sys::Params;

/// The options to open a map with. The limits are those of a map that the open creates; an existing one keeps its own.
///
/// ```no_run
/// use sluice::Map;
///
/// let map = Map::named("cache").create(true).permissions(0o660).capacity(64 << 20).entries(100_000).open()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type Options = options::Options<Map>;

/// The options that only maps have.
#[derive(Clone, Debug, Default)]
pub struct Own {
    entries: u64,
    events: u32,
    durability: Option<Durability>,
    /// Entries that have room in the table, and bytes of a cell; 0: the default.
    table: Option<u64>,
    cell: u32,
}

impl sealed::Sealed for Map {}

impl ChannelKind for Map {
    const KIND: Kind = Kind::Map;
    type Info = MapInfo;
    type OpenError = OpenError;
    type Own = Own;

    fn query(channel: &Channel) -> Result<MapInfo> {
        channel.state::<map::Info>().map(MapInfo::from)
    }
}

impl Creatable for Map {
    fn open_new(options: &Options) -> std::result::Result<OwnedFd, OpenError> {
        options.open_map(abi::OPEN_WRITE)
    }
}

impl Map {
    /// The map of this name.
    pub fn named(name: impl AsRef<[u8]>) -> Options {
        Options::new(name)
    }
}

impl Options {
    /// The most entries that the map may have. By default, and with 0, only its bytes are limited.
    pub fn entries(mut self, entries: u64) -> Self {
        self.own.entries = entries;
        self
    }

    /// How many changes the map keeps for watchers, rounded up to a power of two of up to 65,536; 1024 by default. A watcher that is
    /// further behind misses changes.
    pub fn events(mut self, events: u32) -> Self {
        self.own.events = events;
        self
    }

    /// The map is durable: the daemon sluiced stores its changes, and restores it after a restart of the host. An open with
    /// [`create`](Self::create) then asks the daemon for a map that the module does not have, up to the
    /// [deadline](Durability::deadline): if one of this name is stored in the cgroup of this path, it is restored with its entries and its
    /// own options. A durable map exists until it is unlinked, as if it were [persistent](Self::persistent).
    ///
    /// An open without this option finds a durable map that the module has, but does not ask the daemon.
    ///
    /// ```no_run
    /// use sluice::Map;
    /// use sluice::map::Durability;
    ///
    /// let map = Map::named("jobs").create(true).durable(Durability::always()).open()?;
    /// map.set("4711", b"queued")?; // stored when it returns
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn durable(mut self, durability: Durability) -> Self {
        self.own.durability = Some(durability);
        self
    }

    /// Creates the map with a table in which [`Map::mapped`] looks up entries without a system call. The table has at least 16
    /// [cells](Self::cell) for 10 entries, and its size is a power of two of at least a page: 1.6 to 3.2 cells per entry of larger tables.
    /// With 100,000 entries and cells of 128 bytes it takes 32 MiB.
    ///
    /// The whole table is allocated when the map is created, and never grows. The limits of channels count it and two pages in addition to
    /// the [capacity](Self::capacity), which it does not raise. Each change also writes the cell of its entry. An entry without a cell is read
    /// by a system call.
    ///
    /// An existing map keeps the size of its table, also one that is stored; if it has none, the open fails with [`OpenError::NotMapped`].
    /// With [`durable`](Self::durable) the map has its table again after it was restored.
    pub fn mapped(mut self, entries: u64) -> Self {
        self.own.table = Some(entries);
        self
    }

    /// The size of a cell of the table in bytes, rounded up to a power of two from 64 to 4096; 128 by default, and with 0. A cell holds 32
    /// bytes of overhead, the key, rounded up to a multiple of 8, and the value: with 128 bytes and a key of 16 bytes, a value of up to 80
    /// bytes. A longer entry is read by a system call. Requires [`mapped`](Self::mapped), otherwise the open fails with
    /// [`OpenError::InvalidOptions`].
    pub fn cell(mut self, bytes: u32) -> Self {
        self.own.cell = bytes;
        self
    }

    /// Waiting calls of a [`Watcher`](super::Watcher) fail with [`WatchError::Empty`](super::WatchError::Empty) instead. The open of a
    /// durable map that the module does not have fails with [`OpenError::WouldBlock`].
    pub fn nonblocking(self, nonblocking: bool) -> Self {
        self.flag(abi::OPEN_NONBLOCK, nonblocking)
    }

    /// Opens the map to read and to change it.
    pub fn open(&self) -> std::result::Result<Map, OpenError> {
        self.open_map(abi::OPEN_READ | abi::OPEN_WRITE)
            .map(Map::new)
    }

    /// Opens the map to get entries and to watch it, for which the permission to read suffices.
    pub fn open_reader(&self) -> std::result::Result<Map, OpenError> {
        self.open_map(abi::OPEN_READ).map(Map::new)
    }

    /// Opens the map to set and delete entries, for which the permission to write suffices.
    pub fn open_writer(&self) -> std::result::Result<Map, OpenError> {
        self.open_map(abi::OPEN_WRITE).map(Map::new)
    }

    fn open_map(&self, access: u32) -> std::result::Result<OwnedFd, OpenError> {
        let params = self.own.params()?;
        let opened = self.open_endpoint(access, self.capacity, Params::Map(&params));
        let exclusive = self.has_flag(abi::OPEN_EXCL);
        opened.map_err(|error| match (self.own.durability, self.own.table) {
            (Some(_), None) => durable_open_error(error, exclusive),
            (Some(_), Some(_)) if self.is_volatile() => durable_open_error(error, exclusive),
            (Some(_), Some(_)) => match mapped_open_error(error, exclusive) {
                OpenError::Open(error) => durable_open_error(error, true),
                error => error,
            },
            (None, Some(_)) => mapped_open_error(error, exclusive),
            (None, None) => open_error(error),
        })
    }

    /// Whether the module has the map, and it is not durable.
    fn is_volatile(&self) -> bool {
        self.info().is_ok_and(|info| info.durable.is_none())
    }
}

impl Own {
    fn params(&self) -> std::result::Result<map::Params, OpenError> {
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
        let params = self.with_table(params).ok_or(OpenError::InvalidOptions)?;
        match self.durability {
            Some(durability) => durability.apply(params).ok_or(OpenError::InvalidOptions),
            None => Ok(params),
        }
    }

    /// None: no table has this size.
    fn with_table(&self, params: map::Params) -> Option<map::Params> {
        let Some(entries) = self.table else {
            return (self.cell == 0).then_some(params);
        };
        let cell = match self.cell {
            0 => map::DEFAULT_CELL,
            bytes => bytes.checked_next_power_of_two()?.max(map::CELL_MIN),
        };
        let table = Shape::table_for(entries, cell)?.max(page_size());
        let is_valid = cell <= map::CELL_MAX && table <= map::TABLE_MAX;
        is_valid.then_some(map::Params {
            flags: params.flags | map::MAPPED,
            cell,
            table,
            ..params
        })
    }
}

fn open_error(error: Error) -> OpenError {
    match errno(&error) {
        Some(libc::EINVAL) => OpenError::InvalidOptions,
        _ => error.into(),
    }
}

fn mapped_open_error(error: Error, exclusive: bool) -> OpenError {
    match (&error, errno(&error)) {
        (Error::AlreadyExists { .. }, _) if !exclusive => OpenError::NotMapped,
        // The parameters of a map with a table are longer.
        (_, Some(libc::E2BIG)) => OpenError::Open(Error::ModuleTooOld {
            missing: "mapped maps",
        }),
        _ => open_error(error),
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
        (_, Some(libc::EPROTONOSUPPORT)) => OpenError::StoreTooOld,
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
        let events = |number| {
            let params = Map::named("jobs").events(number).own.params();
            params.map(|all| all.events)
        };
        for (given, expected) in [(0, 0), (1, 1), (1000, 1024), (65_536, 65_536)] {
            assert_eq!(events(given).unwrap(), expected);
        }
        for many in [65_537, u32::MAX] {
            assert!(matches!(events(many), Err(OpenError::InvalidOptions)));
        }
    }

    #[test]
    fn a_table_has_room_for_the_entries() {
        let params = |options: Options| {
            let params = options.own.params();
            params.map(|all| (all.flags, all.table, all.cell))
        };
        let jobs = |entries| Map::named("jobs").mapped(entries);
        let page = page_size();
        assert_eq!(params(jobs(0)).unwrap(), (map::MAPPED, page, 128));
        // 1024 blocks of 16 cells.
        let large = (map::MAPPED, 1024 * 16 * 256, 256);
        assert_eq!(params(jobs(10_000).cell(129)).unwrap(), large);
        for invalid in [
            jobs(10).cell(4097),
            jobs(u64::MAX),
            jobs(1 << 32),
            Map::named("jobs").cell(64),
        ] {
            assert!(matches!(params(invalid), Err(OpenError::InvalidOptions)));
        }
    }

    #[test]
    fn only_a_durable_map_has_flags_and_times() {
        let params =
            |options: Options| options.own.params().map(|all| (all.flags, all.deadline_ms));
        let jobs = || Map::named("jobs");
        assert_eq!(params(jobs()).unwrap(), (0, 0));
        let second = Duration::from_secs(1);
        let durable = jobs().durable(Durability::always().deadline(second));
        assert_eq!(params(durable.clone()).unwrap(), (map::DURABLE, 1000));
        let flags = map::DURABLE | map::MAPPED;
        assert_eq!(params(durable.mapped(10)).unwrap(), (flags, 1000));
        let long = jobs().durable(Durability::interval(Duration::MAX));
        assert!(matches!(params(long), Err(OpenError::InvalidOptions)));
    }

    #[test]
    fn the_chain_sets_what_the_kernel_gets() {
        let options = Map::named("jobs").entries(9).events(64).nonblocking(true);
        let params = options.own.params().unwrap();
        assert_eq!((params.entries, params.events), (9, 64));
        assert!(options.has_flag(abi::OPEN_NONBLOCK));
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
        let full = Error::io("opening", std::io::Error::from_raw_os_error(libc::ENOSPC));
        for (error, word) in [
            (exists(), "'jobs' exists, and is not durable"),
            (full, "or the store"),
            (io(libc::EAGAIN), "blocking open"),
            (io(libc::EPROTONOSUPPORT), "does not store mapped ones"),
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
}
