// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lookups in the mapped table of a map, without a system call.

use std::fmt;
use std::mem::offset_of;
use std::os::fd::AsFd as _;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use sluice_abi::map;
use sluice_table::{Content, Lookup, Memory, Reader, Shape, Value};

use super::dump::Entries;
use super::endpoint::Map;
use super::entry::{Entry, EntryInfo};
use super::error::{OpenError, ReadError};
use crate::shared::atomic_copy::copy_out;
use crate::shared::region::{Access, Region, page_size};
use crate::system_error::SystemError;

/// The pause before an iteration reads a changing cell again.
const BUSY: Duration = Duration::from_micros(50);

/// A map whose entries a process looks up in [mapped memory](super::Options::mapped), see [`Map::mapped`]. A lookup makes no system call
/// if the table has the answer. It never waits for a change.
///
/// A lookup makes the system call of [`Map::get`] if
/// - the key and the value do not fit into a [cell](super::Options::cell);
/// - the table does not have the key, and an entry with the same home block is in another block or has no cell: possible for keys without
///   an entry, too;
/// - the time to live of the entry has passed, and the module has not removed the entry yet;
/// - the cell changed during each of 16 attempts to read it;
/// - the map is destroyed: the call then fails with [`ReadError::Destroyed`].
///
/// The result is that of [`Map::get`] at one moment during the lookup: a lookup finds every change that returned before it began.
///
/// ```no_run
/// use sluice::Map;
///
/// let map = Map::named("prices").create(true).capacity(64 << 20).mapped(100_000).open()?;
/// map.set("NATS", "17")?;
/// let prices = map.mapped()?;
/// if let Some(entry) = prices.get("NATS")? {
///     println!("{:?}, version {}", entry.value, entry.version);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Several threads may use it at the same time. It has a descriptor of its own, and remains usable after the [`Map`] is dropped. The
/// memory of the map is freed when the last descriptor and the last mapping are gone, also if the map is destroyed.
///
/// A child of fork(2) may use it, too, at the same time as its parent. A process in another time namespace has to map the map again: the
/// offset of its clock, which times to live need, is read by [`Map::mapped`].
pub struct MappedMap {
    map: Map,
    header: Region,
    reader: Reader<Table>,
    /// Of CLOCK_BOOTTIME, in ns.
    offset: i64,
}

/// struct sluice_map_header, in which only the module stores.
#[repr(C)]
struct Header {
    seed: AtomicU64,
    table: AtomicU64,
    cell: AtomicU32,
    destroyed: AtomicU32,
    reserved: [AtomicU64; 5],
    unplaced: AtomicU64,
}

const _: () = {
    use map::Header as Abi;
    assert!(size_of::<Header>() == size_of::<Abi>());
    assert!(offset_of!(Header, table) == offset_of!(Abi, table));
    assert!(offset_of!(Header, cell) == offset_of!(Abi, cell));
    assert!(offset_of!(Header, destroyed) == offset_of!(Abi, destroyed));
    assert!(offset_of!(Header, unplaced) == offset_of!(Abi, unplaced));
};

/// The mapped table.
struct Table {
    start: NonNull<u8>,
    /// Keeps it mapped.
    _region: Region,
}

// SAFETY: a mapping belongs to the process, not to a thread, and is only read, by atomic loads.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

impl Table {
    fn new(region: Region) -> Self {
        Self {
            start: region.at(0).cast(),
            _region: region,
        }
    }
}

impl Memory for Table {
    #[inline]
    fn half(&self, at: u64) -> &AtomicU32 {
        // SAFETY: the reader's positions are aligned and within the table, which is mapped as long as this value exists. Only the module
        // stores there.
        unsafe { self.start.add(at as usize).cast().as_ref() }
    }

    #[inline]
    fn word(&self, at: u64) -> &AtomicU64 {
        // SAFETY: as above.
        unsafe { self.start.add(at as usize).cast().as_ref() }
    }

    #[inline]
    fn copy(&self, at: u64, to: &mut [u8]) {
        // SAFETY: as above; the bytes are within a cell.
        unsafe {
            copy_out(
                self.start.as_ptr().add(at as usize),
                to.as_mut_ptr(),
                to.len(),
            )
        }
    }
}

/// An entry and the position of its cell, for [`MappedMap::is_current`].
#[derive(Clone, Debug)]
pub struct Cached {
    entry: Entry,
    /// None: the value is not in the table.
    place: Option<Value>,
}

impl Cached {
    /// The entry as it was read.
    pub fn entry(&self) -> &Entry {
        &self.entry
    }

    /// The entry as it was read, without the position.
    pub fn into_entry(self) -> Entry {
        self.entry
    }
}

impl MappedMap {
    pub(super) fn new(map: &Map) -> Result<Self, OpenError> {
        if map.info()?.table.is_none() {
            return Err(OpenError::NotMapped);
        }
        let endpoint = map.as_fd().try_clone_to_owned().map_err(failure)?;
        let header = region(map, map::MMAP_HEADER, page_size() as usize)?;
        let shape = shape_of(header_of(&header)).ok_or(OpenError::NotMapped)?;
        let bytes = usize::try_from(shape.table()).map_err(|_| OpenError::NotMapped)?;
        let table = Table::new(region(map, map::MMAP_TABLE, bytes)?);
        Ok(Self {
            map: Map::new(endpoint),
            header,
            reader: Reader::new(table, shape),
            offset: boottime_offset(),
        })
    }

    /// The map, for all other calls.
    pub fn map(&self) -> &Map {
        &self.map
    }

    /// The entry of a key, or none. Allocates the value; [`get_into`](Self::get_into) does not.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Entry>, ReadError> {
        let cached = self.get_cached(key)?;
        Ok(cached.map(Cached::into_entry))
    }

    /// Copies the value of a key to `into`, without an allocation. A value longer than `into` is not copied:
    /// [`ReadError::BufferTooSmall`].
    #[inline]
    pub fn get_into(
        &self,
        key: impl AsRef<[u8]>,
        into: &mut [u8],
    ) -> Result<Option<EntryInfo>, ReadError> {
        let key = key.as_ref();
        ReadError::check_key(key)?;
        match self.lookup(key, into) {
            Lookup::Value(value) if value.length as usize <= into.len() => Ok(Some(EntryInfo {
                len: value.length as usize,
                version: value.version,
                time_to_live: self.time_to_live(&value),
            })),
            Lookup::Absent => Ok(None),
            Lookup::Value(_) | Lookup::Ask => self.map.get_into(key, into),
        }
    }

    /// The entries of these keys, in their order. Each key is a lookup of its own; the result is no snapshot.
    pub fn get_many<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Entry>>, ReadError> {
        keys.into_iter().map(|key| self.get(key)).collect()
    }

    /// The entry of a key, for reuse while [`is_current`](Self::is_current) is true.
    pub fn get_cached(&self, key: impl AsRef<[u8]>) -> Result<Option<Cached>, ReadError> {
        let key = key.as_ref();
        ReadError::check_key(key)?;
        let mut room = vec![0; self.reader.shape().cell_size() as usize];
        match self.lookup(key, &mut room) {
            Lookup::Value(value) => {
                room.truncate(value.length as usize);
                Ok(Some(Cached {
                    entry: self.entry(room, &value),
                    place: Some(value),
                }))
            }
            Lookup::Absent => Ok(None),
            Lookup::Ask => {
                let entry = self.map.get(key)?;
                Ok(entry.map(|entry| Cached { entry, place: None }))
            }
        }
    }

    /// Whether the entry is unchanged, without a system call: two loads, and the clock if the entry has a time to live. False if the entry
    /// has changed or expired, or if its map is destroyed. Always false for a value that was not in the table: such an entry is read each
    /// time.
    #[inline]
    pub fn is_current(&self, cached: &Cached) -> bool {
        let Some(value) = &cached.place else {
            return false;
        };
        !value.has_expired(|| self.now()) && !self.is_destroyed() && self.reader.is_current(value)
    }

    /// All entries, as [`Map::entries`]: from the table, or by system calls if an entry has no cell when the iteration begins. An entry whose
    /// value is not in the table costs a system call. While a cell changes, the iteration sleeps for 50 µs and reads it again.
    pub fn entries(&self) -> MappedEntries<'_> {
        // An entry that exists during the whole iteration has a cell, or is counted now.
        match header_of(&self.header).unplaced.load(Ordering::Relaxed) {
            0 if !self.is_destroyed() => MappedEntries::new(self),
            _ => MappedEntries {
                map: self,
                block: self.reader.shape().blocks(),
                found: Vec::new(),
                rest: Some(self.map.entries()),
            },
        }
    }

    /// The entry of a cell, if it has one.
    fn read_cell(&self, cell: u64) -> Result<Option<(Vec<u8>, Entry)>, ReadError> {
        let (mut key, mut bytes) = (Vec::new(), Vec::new());
        loop {
            match self.reader.read_cell(cell, &mut key, &mut bytes) {
                Content::Free => return Ok(None),
                Content::Entry(Some(value)) if !value.has_expired(|| self.now()) => {
                    return Ok(Some((key, self.entry(bytes, &value))));
                }
                Content::Entry(_) => {
                    let entry = self.map.get(&key)?;
                    return Ok(entry.map(|entry| (key, entry)));
                }
                // Its writer may need this processor.
                Content::Busy => thread::sleep(BUSY),
            }
        }
    }

    /// CLOCK_BOOTTIME of the initial time namespace, in ns.
    fn now(&self) -> u64 {
        let now = clock_gettime(ClockId::Boottime);
        let here = now.tv_sec * 1_000_000_000 + now.tv_nsec;
        here.saturating_sub(self.offset).try_into().unwrap_or(0)
    }

    fn time_to_live(&self, value: &Value) -> Option<Duration> {
        let expires = (value.expires_ns != u64::MAX).then_some(value.expires_ns)?;
        Some(Duration::from_nanos(
            expires.saturating_sub(self.now()).max(1),
        ))
    }

    fn entry(&self, bytes: Vec<u8>, value: &Value) -> Entry {
        Entry {
            value: bytes,
            version: value.version,
            time_to_live: self.time_to_live(value),
        }
    }

    #[inline]
    fn lookup(&self, key: &[u8], room: &mut [u8]) -> Lookup {
        match self.is_destroyed() {
            true => Lookup::Ask,
            false => self.reader.get(key, room, || self.now()),
        }
    }

    #[inline]
    fn is_destroyed(&self) -> bool {
        let header = header_of(&self.header);
        header.destroyed.load(Ordering::Relaxed) != 0
    }
}

impl fmt::Debug for MappedMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MappedMap")
            .field("map", &self.map)
            .field("shape", self.reader.shape())
            .finish_non_exhaustive()
    }
}

/// The iterator over all entries that [`MappedMap::entries`] returns: keys and their entries, in no order. It continues after an
/// error of one entry.
pub struct MappedEntries<'a> {
    map: &'a MappedMap,
    /// The next block of the table.
    block: u64,
    /// Entries of the previous block, returned from the end.
    found: Vec<Result<(Vec<u8>, Entry), ReadError>>,
    /// The iteration by system calls, which replaces that of the table.
    rest: Option<Entries<'a>>,
}

impl<'a> MappedEntries<'a> {
    fn new(map: &'a MappedMap) -> Self {
        Self {
            map,
            block: 0,
            found: Vec::new(),
            rest: None,
        }
    }

    fn read_block(&mut self) {
        for cell in self.map.reader.used_cells(self.block) {
            self.found.extend(self.map.read_cell(cell).transpose());
        }
        self.block += 1;
    }
}

impl Iterator for MappedEntries<'_> {
    type Item = Result<(Vec<u8>, Entry), ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.found.is_empty() && self.block < self.map.reader.shape().blocks() {
            self.read_block();
        }
        self.found.pop().or_else(|| self.rest.as_mut()?.next())
    }
}

fn region(map: &Map, offset: u64, bytes: usize) -> Result<Region, OpenError> {
    let region = Region::map(map, offset, bytes, Access::ReadOnly);
    region.map_err(|error| failure(error.into()))
}

fn failure(error: std::io::Error) -> OpenError {
    SystemError::new("mapping the map", error).into()
}

/// The header in its region, a page.
#[inline]
fn header_of(region: &Region) -> &Header {
    // SAFETY: the page has a header, all of which is atomic.
    unsafe { region.at(0).cast().as_ref() }
}

fn shape_of(header: &Header) -> Option<Shape> {
    let (seed, table) = (&header.seed, &header.table);
    Shape::new(
        seed.load(Ordering::Relaxed),
        table.load(Ordering::Relaxed),
        header.cell.load(Ordering::Relaxed),
    )
}

/// By how much CLOCK_BOOTTIME of this process is ahead of the initial time namespace, in ns. 0 on kernels without time namespaces.
fn boottime_offset() -> i64 {
    let offsets = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    parse_offset(&offsets).unwrap_or(0)
}

/// From lines of a clock, seconds and nanoseconds.
fn parse_offset(offsets: &str) -> Option<i64> {
    let line = |line: &str| Some(line.strip_prefix("boottime")?.to_owned());
    let line = offsets.lines().find_map(line)?;
    let mut numbers = line.split_whitespace().map(|number| number.parse().ok());
    let (seconds, nanoseconds): (i64, i64) = (numbers.next()??, numbers.next()??);
    seconds.checked_mul(1_000_000_000)?.checked_add(nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_of_a_time_namespace_is_in_nanoseconds() {
        let offsets = "monotonic           1         2\nboottime           -4         5\n";
        assert_eq!(parse_offset(offsets), Some(-4_000_000_000 + 5));
        for other in ["", "monotonic 1 2\n", "boottime 1\n", "boottime x 1\n"] {
            assert_eq!(parse_offset(other), None, "{other}");
        }
    }
}
