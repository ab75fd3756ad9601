// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is stored of durable maps, and the trait of what stores it.

use std::collections::HashMap;
use std::fmt;

use nix::errno::Errno;
use sluiced_protocol::MapName;

/// Identifies a stored map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MapId(pub i64);

/// What a map was created with: the kernel needs it to make the map again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Params {
    pub uid: u32,
    pub gid: u32,
    pub mode: u32,
    /// `sluice_abi::map::DURABLE`, `INTERVAL`, `REFUSE`, `MAPPED`.
    pub flags: u32,
    pub capacity: u64,
    pub entries_max: u64,
    pub events: u32,
    pub deadline_ms: u32,
    pub interval_ms: u32,
    /// Bytes of a cell of the table of a mapped map.
    pub cell: u32,
    /// Bytes of the table; 0: the map has none.
    pub table: u64,
}

/// A stored map without its entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredMap {
    pub id: MapId,
    pub path: Vec<u8>,
    pub name: Vec<u8>,
    pub params: Params,
    /// All changes up to this number are stored.
    pub applied: u64,
    /// No change has a greater number.
    pub reserved: u64,
    /// Whether it is left alone at the start.
    pub detached: bool,
    /// Seconds since 1970.
    pub created: u64,
    /// Since when its cgroup is gone, in seconds since 1970.
    pub orphaned: Option<u64>,
    pub usage: Usage,
}

impl StoredMap {
    pub fn map_name(&self) -> MapName {
        MapName {
            path: self.path.as_slice().into(),
            name: self.name.as_slice().into(),
        }
    }
}

/// For messages: the path of its cgroup and its name.
impl fmt::Display for StoredMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.map_name().fmt(f)
    }
}

/// What the entries of a map occupy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub entries: u64,
    /// Of keys and values.
    pub bytes: u64,
}

impl Usage {
    pub fn change(&mut self, change: UsageChange) {
        self.entries = self.entries.saturating_add_signed(change.entries);
        self.bytes = self.bytes.saturating_add_signed(change.bytes);
    }
}

/// What a transaction changes in the usage of a map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageChange {
    pub entries: i64,
    pub bytes: i64,
}

/// By map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageChanges(pub HashMap<MapId, UsageChange>);

impl UsageChanges {
    /// The lengths are those of the value before and after the change, if there is one.
    pub fn replaced(&mut self, map: MapId, key: &[u8], old: Option<usize>, new: Option<usize>) {
        let bytes = |length: Option<usize>| length.map_or(0, |value| (key.len() + value) as i64);
        let change = self.0.entry(map).or_default();
        change.entries += i64::from(new.is_some()) - i64::from(old.is_some());
        change.bytes += bytes(new) - bytes(old);
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEntry {
    pub key: Vec<u8>,
    pub value: Vec<u8>,
    pub version: u64,
    /// By the time of the store; 0: never.
    pub expires_ns: u64,
}

/// The time of the store, which is that of `offset` after CLOCK_BOOTTIME, and both clocks at a commit. In nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredClock {
    /// /proc/sys/kernel/random/boot_id.
    pub boot: String,
    pub boottime: i64,
    /// The system clock.
    pub realtime: i64,
    /// Whether that was synchronised.
    pub synchronised: bool,
    pub offset: i64,
    /// The offset if no time had passed between the last commit of the boot before and this boot. That of a settled clock.
    pub offset_min: i64,
    /// The system clock after CLOCK_BOOTTIME, when `offset` was chosen.
    pub realtime_offset: i64,
}

impl StoredEntry {
    pub fn len(&self) -> usize {
        self.key.len() + self.value.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A part of a transaction. What names a map that is not stored changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write<'a> {
    /// A new map; its usage is ignored. Fails if there is one of this path and name.
    Create(&'a StoredMap),
    Set {
        map: MapId,
        key: &'a [u8],
        value: &'a [u8],
        version: u64,
        expires_ns: u64,
    },
    Delete {
        map: MapId,
        key: &'a [u8],
    },
    /// Deletes an entry if it has this version.
    Expire {
        map: MapId,
        key: &'a [u8],
        version: u64,
    },
    Progress {
        map: MapId,
        applied: u64,
        reserved: u64,
    },
    Detached {
        map: MapId,
        detached: bool,
    },
    Orphaned {
        map: MapId,
        since: Option<u64>,
    },
    Clock(&'a StoredClock),
    /// The map is gone at once; its entries go by `Purge`.
    Remove(MapId),
    /// Deletes up to this number of entries of a removed map.
    Purge {
        map: MapId,
        entries: usize,
    },
}

/// How much of a map is read at once: up to so many entries, and no further one after so many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLimit {
    pub entries: usize,
    pub bytes: usize,
}

/// Stores maps. One process uses it at a time.
pub trait Store {
    fn maps(&mut self) -> Result<Vec<StoredMap>, StoreError>;

    /// Entries of a map in the order of their keys, after a key. The last page is empty.
    fn page(
        &mut self,
        map: MapId,
        after: Option<&[u8]>,
        limit: PageLimit,
    ) -> Result<Vec<StoredEntry>, StoreError>;

    /// None: no commit has stored one.
    fn clock(&mut self) -> Result<Option<StoredClock>, StoreError>;

    /// A removed map that may still have entries.
    fn removed(&mut self) -> Result<Option<MapId>, StoreError>;

    /// Executes all writes or none, in their order; after success they outlast a crash of the system. After an error it is not
    /// known which of the two is the case, and only `reopen` may follow.
    fn commit(&mut self, writes: &[Write<'_>]) -> Result<UsageChanges, StoreError>;

    /// Opens the store anew, trusting nothing that was written but not known to be on the disk.
    fn reopen(&mut self) -> Result<(), StoreError>;

    /// The greatest number that an id has or had.
    fn last_id(&mut self) -> Result<i64, StoreError>;
}

/// What the kernel is told, and what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreErrorKind {
    Full,
    ReadOnly,
    /// Damaged; only a repair helps.
    Damaged,
    Other,
}

#[derive(Clone, Debug, thiserror::Error)]
#[error("{text}")]
pub struct StoreError {
    pub kind: StoreErrorKind,
    /// What failed, the cause, what to do.
    pub text: String,
}

impl StoreError {
    pub fn errno(&self) -> Errno {
        match self.kind {
            StoreErrorKind::Full => Errno::ENOSPC,
            StoreErrorKind::ReadOnly => Errno::EROFS,
            StoreErrorKind::Damaged | StoreErrorKind::Other => Errno::EIO,
        }
    }
}
