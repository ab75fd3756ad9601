// SPDX-License-Identifier: MIT OR Apache-2.0
//! Maps of the module: their channels, operations, dumps and events.

use std::os::fd::{AsFd, OwnedFd};
use std::ptr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::errno::Errno;

use super::channel::read_some;
use super::ctl::{BOTH, CREATE, ChannelInfo, Ctl, DESTROY, NONBLOCK, OWN, Open, PERSIST, UNLINK};
use super::ioctl::{self, raw, raw_with_result};
use super::near;

pub use sluice_abi::KIND_MAP;
pub use sluice_abi::map::{
    BATCH, BATCH_MAX, Batch, CREATED, Cursor, DELETE, DELETED, DUMP, Dump, EVENTS_MAX, EXPIRED,
    Event, GET, IF_VERSION, INFO, Info, KEY_MAX, KEYS, NOW, Op, Params, Record, SET, STEP_DELETE,
    STEP_GET, STEP_SET, Step, UPDATED, VALUE_MAX, WATCH,
};

/// The map of a test.
pub const NAME: &str = "map";
pub const DEFAULT_CAPACITY: u64 = 4 << 20;
pub const DEFAULT_EVENTS: u32 = 1024;
/// Room for any value.
pub const ROOM: usize = VALUE_MAX;

/// A request for a map. It refers to the parameters.
pub fn request(flags: u32, params: &Params) -> Open {
    Open {
        kind: KIND_MAP,
        params: ptr::from_ref(params) as u64,
        ..Open::new(NAME, flags)
    }
}

/// The maps of the own cgroup. Endpoints are in non-blocking mode.
pub struct Maps(pub Ctl);

impl Maps {
    pub fn new() -> Result<Self> {
        Ok(Maps(Ctl::new()?))
    }

    /// An endpoint, for reading and writing, of a new map.
    pub fn create(&self) -> Result<OwnedFd> {
        self.create_with(Params::default(), 0)
    }

    pub fn create_with(&self, params: Params, capacity: u64) -> Result<OwnedFd> {
        self.open_sized(BOTH | CREATE, params, capacity)
            .context("creating a map")
    }

    pub fn open_sized(&self, flags: u32, params: Params, capacity: u64) -> nix::Result<OwnedFd> {
        self.0.open(Open {
            capacity,
            ..request(flags | NONBLOCK, &params)
        })
    }

    pub fn open(&self, flags: u32) -> nix::Result<OwnedFd> {
        self.open_sized(flags, Params::default(), 0)
    }

    /// One more endpoint for reading and writing.
    pub fn attach(&self) -> Result<OwnedFd> {
        self.open(BOTH).context("opening the map again")
    }

    pub fn persist(&self) -> Result<OwnedFd> {
        self.open(BOTH | CREATE | PERSIST)
            .context("creating a persistent map")
    }

    pub fn unlink(&self) -> nix::Result<()> {
        self.0.remove(UNLINK, KIND_MAP, OWN, NAME)
    }

    pub fn destroy(&self) -> nix::Result<()> {
        self.0.remove(DESTROY, KIND_MAP, OWN, NAME)
    }

    pub fn info(&self) -> nix::Result<(ChannelInfo, Info)> {
        let (common, info) = self.0.state(KIND_MAP, OWN, NAME)?;
        Ok((common, from_zero(info)))
    }
}

// ---- operations ----

pub fn info(end: &impl AsFd) -> nix::Result<Info> {
    ioctl::get(end, INFO).map(from_zero)
}

fn from_zero(info: Info) -> Info {
    Info {
        sequence: near::change_from_zero(info.sequence),
        watched: near::change_from_zero(info.watched),
        ..info
    }
}

pub fn state(end: &impl AsFd) -> Result<Info> {
    info(end).context("asking an endpoint for the state")
}

/// A value with its version and its time to live, 0 without a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub value: Vec<u8>,
    pub version: u64,
    pub ttl_ns: u64,
}

/// With room for most values; again with as much as a longer one needs.
pub fn get_entry(end: &impl AsFd, key: &[u8]) -> nix::Result<Entry> {
    let mut room = vec![0; 256];
    loop {
        let mut op = Op::get(key, &mut room);
        let done = raw(end, GET, &mut op);
        if done == Err(Errno::EMSGSIZE) {
            room.resize(op.value_length as usize, 0);
            continue;
        }
        done?;
        room.truncate(op.value_length as usize);
        return Ok(Entry {
            value: room,
            version: near::change_from_zero(op.version),
            ttl_ns: op.ttl_ns,
        });
    }
}

pub fn get(end: &impl AsFd, key: &[u8]) -> nix::Result<Vec<u8>> {
    get_entry(end, key).map(|entry| entry.value)
}

/// What a set has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    pub created: bool,
    pub version: u64,
}

fn set_op(end: &impl AsFd, mut op: Op) -> nix::Result<Done> {
    let created = raw_with_result(end, SET, &mut op)? == 1;
    Ok(Done {
        created,
        version: near::change_from_zero(op.version),
    })
}

pub fn set(end: &impl AsFd, key: &[u8], value: &[u8]) -> nix::Result<Done> {
    set_op(end, Op::set(key, value))
}

/// As set(), which must not fail; returns the version.
pub fn put(end: &impl AsFd, key: &[u8], value: &[u8]) -> Result<u64> {
    let done = set(end, key, value).context("setting a value")?;
    Ok(done.version)
}

pub fn set_for(end: &impl AsFd, key: &[u8], value: &[u8], time: Duration) -> nix::Result<Done> {
    let op = Op {
        ttl_ns: time.as_nanos() as u64,
        ..Op::set(key, value)
    };
    set_op(end, op)
}

/// If the entry has this version; 0: if there is none.
pub fn set_if(end: &impl AsFd, key: &[u8], value: &[u8], version: u64) -> nix::Result<Done> {
    let op = Op {
        flags: IF_VERSION,
        version: near::version_in_module(version),
        ..Op::set(key, value)
    };
    set_op(end, op)
}

/// The version of the entry.
pub fn delete(end: &impl AsFd, key: &[u8]) -> nix::Result<u64> {
    let mut op = Op::delete(key);
    raw(end, DELETE, &mut op)?;
    Ok(near::change_from_zero(op.version))
}

pub fn delete_if(end: &impl AsFd, key: &[u8], version: u64) -> nix::Result<u64> {
    let mut op = Op {
        flags: IF_VERSION,
        version: near::version_in_module(version),
        ..Op::delete(key)
    };
    raw(end, DELETE, &mut op)?;
    Ok(near::change_from_zero(op.version))
}

/// Executes the steps; the number of those that were executed.
pub fn batch(end: &impl AsFd, steps: &mut [Step]) -> nix::Result<usize> {
    let mut batch = Batch::new(steps.as_mut_ptr(), steps.len());
    raw(end, BATCH, &mut batch)?;
    Ok(batch.count as usize)
}

// ---- dumps ----

/// A record of a dump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dumped {
    pub key: Vec<u8>,
    pub value: Vec<u8>,
    pub version: u64,
    pub ttl_ns: u64,
}

fn parse_record(bytes: &[u8], flags: u32) -> Result<(Dumped, usize)> {
    let header = Record::from_bytes(bytes.first_chunk().context("a record is cut off")?);
    ensure!(
        header.header as usize == Record::SIZE && header.reserved == 0,
        "{header:?}"
    );
    let key_end = Record::SIZE + header.key_length as usize;
    let stored = match flags & KEYS {
        0 => header.value_length as usize,
        _ => 0,
    };
    let end = key_end + stored;
    ensure!(
        header.size as usize == end.next_multiple_of(8),
        "{header:?}"
    );
    let bytes = bytes
        .get(..header.size as usize)
        .context("a record is cut off")?;
    ensure!(bytes[end..].iter().all(|byte| *byte == 0), "padding");
    let dumped = Dumped {
        key: bytes[Record::SIZE..key_end].to_vec(),
        value: bytes[key_end..end].to_vec(),
        version: near::change_from_zero(header.version),
        ttl_ns: header.ttl_ns,
    };
    Ok((dumped, header.size as usize))
}

/// One call: the records, and where it goes on. None: the end.
pub fn dump_part(
    end: &impl AsFd,
    flags: u32,
    cursor: &mut Cursor,
    room: usize,
) -> Result<Option<Vec<Dumped>>> {
    let untouched = vec![0xa5; room];
    let mut bytes = untouched.clone();
    let mut dump = Dump::new(flags, *cursor, &mut bytes);
    raw(end, DUMP, &mut dump).context("dumping")?;
    *cursor = dump.cursor;
    let (mut records, mut at) = (Vec::new(), 0);
    while at < dump.length as usize {
        let (record, size) = parse_record(&bytes[at..dump.length as usize], flags)?;
        records.push(record);
        at += size;
    }
    ensure!(
        records.len() == dump.count as usize,
        "{} records",
        dump.count
    );
    // Of slices: millions of single bytes take long where nothing is optimized.
    ensure!(
        bytes[at..] == untouched[at..],
        "bytes behind the records were changed"
    );
    Ok((!records.is_empty()).then_some(records))
}

pub fn dump_with(end: &impl AsFd, flags: u32, room: usize) -> Result<Vec<Dumped>> {
    let (mut cursor, mut records) = (Cursor::default(), Vec::new());
    while let Some(part) = dump_part(end, flags, &mut cursor, room)? {
        records.extend(part);
    }
    Ok(records)
}

/// All entries, by key.
pub fn dump(end: &impl AsFd) -> Result<Vec<Dumped>> {
    let mut records = dump_with(end, 0, 2 * ROOM)?;
    records.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(records)
}

// ---- events ----

/// An event and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub change: u16,
    pub key: Vec<u8>,
    pub sequence: u64,
    pub version: u64,
    pub missed: u64,
}

/// Watches the changes after this one, or from now on; returns the number of the last one before.
pub fn watch(end: &impl AsFd, after: u64) -> nix::Result<u64> {
    ioctl::set(end, WATCH, near::change_in_module(after)).map(near::change_from_zero)
}

pub fn parse_events(bytes: &[u8]) -> Result<Vec<Change>> {
    let (mut events, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let header = Event::from_bytes(bytes[at..].first_chunk().context("an event is cut off")?);
        let end = Event::SIZE + header.key_length as usize;
        ensure!(
            header.size as usize == end.next_multiple_of(8),
            "{header:?}"
        );
        let event = bytes
            .get(at..at + header.size as usize)
            .context("an event is cut off")?;
        ensure!(event[end..].iter().all(|byte| *byte == 0), "padding");
        events.push(Change {
            change: header.change,
            key: event[Event::SIZE..end].to_vec(),
            sequence: near::change_from_zero(header.sequence),
            version: near::change_from_zero(header.version),
            missed: header.missed,
        });
        at += header.size as usize;
    }
    Ok(events)
}

/// The events of one read(2) with this much room.
pub fn read_events(end: &impl AsFd, room: usize) -> Result<Vec<Change>> {
    let bytes = read_some(end, room).context("reading events")?;
    parse_events(&bytes)
}

/// All events that are there.
pub fn events(end: &impl AsFd) -> Result<Vec<Change>> {
    let mut events = Vec::new();
    loop {
        match read_some(end, 65536) {
            Ok(bytes) => events.extend(parse_events(&bytes)?),
            Err(Errno::EAGAIN) => return Ok(events),
            Err(error) => return Err(error).context("reading events"),
        }
    }
}
