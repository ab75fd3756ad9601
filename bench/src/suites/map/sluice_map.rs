// SPDX-License-Identifier: MIT OR Apache-2.0
//! The map of the module, by the calls of an endpoint. Each client has an endpoint of its own.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};
use nix::errno::Errno;
use sluice_abi::map::{Batch, Cursor, Dump, Op, Record, STEP_GET, Step};
use sluice_abi::{CTL_OPEN, KIND_MAP, OPEN_CREATE, OPEN_READ, OPEN_WRITE, Open, map};
use sluice_testkit::module::SLUICE;

use super::store::{Client, KEY_SIZE, Key, Resources, Store, VALUE_SIZE, Value, Visit};
use crate::harness::rounds::Skipped;

pub const CTL: &str = "/dev/sluice/ctl";
pub const NAME: &str = "map";
/// Of each key, beside the key and its value.
const OVERHEAD: u64 = 512;
const LEAST_CAPACITY: u64 = 1 << 22;
/// Of a call: as many records as the rival's batch has.
const DUMP_BYTES: usize = 1024 * (Record::SIZE + KEY_SIZE + VALUE_SIZE);

pub fn unavailable(resources: &Resources) -> Option<Skipped> {
    if !Path::new(CTL).exists() {
        return Some(Skipped::unavailable("sluice-map-fd", SLUICE.how_to_load()));
    }
    resources.cgroups.as_ref().err().cloned()
}

pub fn create(keys: u64, resources: &Resources) -> Result<Box<dyn Store>> {
    Ok(Box::new(Map::new(keys, resources)?))
}

fn open(scope: &File, flags: u32, capacity: u64) -> Result<OwnedFd> {
    let ctl = File::options().read(true).write(true).open(CTL);
    let ctl = ctl.with_context(|| format!("cannot open {CTL}; run as root"))?;
    let mut open = Open {
        kind: KIND_MAP,
        scope_fd: scope.as_raw_fd(),
        capacity,
        ..Open::new(NAME, flags | OPEN_READ | OPEN_WRITE)
    };
    // SAFETY: the kernel reads one Open, which has no parameters.
    let fd = unsafe { libc::ioctl(ctl.as_raw_fd(), CTL_OPEN, &raw mut open) };
    let fd = Errno::result(fd).context("cannot open a map; see 'dmesg | tail'")?;
    // SAFETY: the call returned a new file descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

pub struct Map {
    scope: File,
    /// The map exists as long as an endpoint of it.
    _creator: OwnedFd,
}

impl Map {
    pub fn new(keys: u64, resources: &Resources) -> Result<Self> {
        let tree = resources.cgroups.as_ref();
        let tree = tree.map_err(|skip| anyhow!("{}", skip.reason))?;
        let scope = tree.create_cgroup()?.directory()?;
        let capacity = keys * (OVERHEAD + (KEY_SIZE + VALUE_SIZE) as u64);
        Ok(Self {
            _creator: open(&scope, OPEN_CREATE, capacity.max(LEAST_CAPACITY))?,
            scope,
        })
    }

    /// The cgroup in which it has its name.
    pub fn scope(&self) -> &File {
        &self.scope
    }
}

impl Store for Map {
    fn client(&self) -> Result<Box<dyn Client>> {
        Ok(Box::new(Endpoint {
            fd: open(&self.scope, 0, 0)?,
            steps: Vec::new(),
            records: vec![0; DUMP_BYTES],
            part: Dump::new(0, Cursor::default(), &mut []),
        }))
    }
}

struct Endpoint {
    fd: OwnedFd,
    steps: Vec<Step>,
    records: Vec<u8>,
    /// The last part of a dump.
    part: Dump,
}

impl Endpoint {
    /// # Safety
    /// `argument` is the structure of this command, and all addresses in it are valid for it.
    unsafe fn call<T>(&self, command: libc::Ioctl, argument: &mut T) -> Result<i32, Errno> {
        // SAFETY: by the caller.
        Errno::result(unsafe { libc::ioctl(self.fd.as_raw_fd(), command, argument) })
    }
}

fn expect_length(length: u32) -> Result<()> {
    ensure!(length as usize == VALUE_SIZE, "a value has {length} bytes");
    Ok(())
}

impl Client for Endpoint {
    fn get(&mut self, key: &Key, value: &mut Value) -> Result<()> {
        let mut op = Op::get(key, value);
        // SAFETY: the kernel reads a key, and writes a value for which there is room.
        unsafe { self.call(map::GET, &mut op) }.context("cannot get a value")?;
        expect_length(op.value_length)
    }

    fn set(&mut self, key: &Key, value: &Value) -> Result<()> {
        let mut op = Op::set(key, value);
        // SAFETY: the kernel reads a key and a value.
        let result = unsafe { self.call(map::SET, &mut op) };
        result.map(drop).context("cannot set a value")
    }

    fn get_batch(&mut self, keys: &[Key], values: &mut [Value]) -> Result<()> {
        let mut steps = std::mem::take(&mut self.steps);
        steps.clear();
        let pairs = keys.iter().zip(&mut *values);
        steps.extend(pairs.map(|(key, value)| Step::new(STEP_GET, &Op::get(key, value))));
        let mut batch = Batch::new(steps.as_mut_ptr(), steps.len());
        // SAFETY: as many steps as the count says, with the addresses of a key and of room for a value each.
        unsafe { self.call(map::BATCH, &mut batch) }.context("cannot get values in a batch")?;
        ensure!(
            batch.count as usize == keys.len(),
            "a batch was cut off after {} operations",
            batch.count
        );
        for step in &steps {
            ensure!(
                step.result == 0,
                "cannot get a value in a batch: {}",
                Errno::from_raw(-step.result)
            );
            expect_length(step.value_length)?;
        }
        self.steps = steps;
        Ok(())
    }

    fn dump_part(&mut self, restart: bool) -> Result<bool> {
        let cursor = match restart {
            true => Cursor::default(),
            false => self.part.cursor,
        };
        let mut part = Dump::new(0, cursor, &mut self.records);
        // SAFETY: there is room for as many bytes as the length says.
        unsafe { self.call(map::DUMP, &mut part) }.context("cannot dump a map")?;
        self.part = part;
        Ok(part.count > 0)
    }

    fn visit_part(&self, visit: &mut Visit) -> Result<()> {
        let mut rest = self.records.get(..self.part.length as usize);
        for _ in 0..self.part.count {
            let entry;
            (entry, rest) = next_record(rest)?;
            visit(entry.0, entry.1)?;
        }
        Ok(())
    }
}

type Entry<'a> = (&'a [u8], &'a Value);

/// The key and the value of the first record, and what follows it.
fn next_record(records: Option<&[u8]>) -> Result<(Entry<'_>, Option<&[u8]>)> {
    let entry = records.and_then(|bytes| {
        let record = Record::from_bytes(bytes.first_chunk()?);
        let key = usize::from(record.header);
        let value = key + usize::from(record.key_length);
        let end = value + record.value_length as usize;
        let entry = (
            bytes.get(key..value)?,
            bytes.get(value..end)?.try_into().ok()?,
        );
        Some((entry, bytes.get(record.size as usize..)))
    });
    entry.context("a record of a dump is damaged")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(key: &[u8], value: &Value) -> Vec<u8> {
        let size = (Record::SIZE + key.len() + value.len()).next_multiple_of(8);
        let record = Record {
            size: size as u32,
            value_length: value.len() as u32,
            version: 1,
            ttl_ns: 0,
            key_length: key.len() as u16,
            header: Record::SIZE as u16,
            reserved: 0,
        };
        let mut bytes = [&record.to_bytes()[..], key, value].concat();
        bytes.resize(size, 0);
        bytes
    }

    #[test]
    fn records_are_parsed_one_after_the_other() {
        let records = [record(b"one", &[1; 64]), record(b"other", &[2; 64])].concat();
        let (first, rest) = next_record(Some(&records)).unwrap();
        assert_eq!(first, (&b"one"[..], &[1; 64]));
        let (second, rest) = next_record(rest).unwrap();
        assert_eq!(second, (&b"other"[..], &[2; 64]));
        assert!(next_record(rest).is_err());
    }

    #[test]
    fn a_record_that_exceeds_the_buffer_is_an_error() {
        let whole = record(b"key", &[1; 64]);
        for length in 0..Record::SIZE + 3 + 64 {
            assert!(next_record(Some(&whole[..length])).is_err(), "{length}");
        }
    }
}
