// SPDX-License-Identifier: MIT OR Apache-2.0
//! The map of the module, by the calls of an endpoint. Each client has an endpoint of its own.

use std::os::fd::AsRawFd;
use std::path::Path;
use std::rc::Rc;

use anyhow::{Context, Result, ensure};
use nix::errno::Errno;
use sluice::map::{Durability, Options};
use sluice::{Map, Scope};
use sluice_abi::map::{self, Batch, Cursor, Dump, Op, Record, STEP_GET, Step};
use sluice_testkit::cgroup::Cgroup;
use sluice_testkit::module::SLUICE;

use super::store::{
    Client, KEY_SIZE, Key, Stopwatch, Store, StoreResources, VALUE_SIZE, Value, Visit, filled,
};
use crate::harness::rounds::Skipped;

const CTL: &str = "/dev/sluice/ctl";
pub const NAME: &str = "bench";
/// Of each entry, beside its key and its value.
const OVERHEAD: u64 = 512;
const LEAST_CAPACITY: u64 = 1 << 22;
/// The bytes of a record with a key and its value.
const RECORD: usize = Record::SIZE + KEY_SIZE + VALUE_SIZE;
/// Of a call: as many records as the rival's batch has.
const DUMP_BYTES: usize = 1024 * RECORD;

pub fn unavailable(resources: &StoreResources) -> Option<Skipped> {
    match Path::new(CTL).exists() {
        true => resources.cgroups.as_ref().err().cloned(),
        false => Some(Skipped::unavailable("sluice-map-fd", SLUICE.how_to_load())),
    }
}

pub fn create(keys: u64, resources: &StoreResources) -> Result<Rc<dyn Store>> {
    let map = create_named(keys, KEY_SIZE + VALUE_SIZE, None, resources)?;
    let client = move || -> Result<Box<dyn Client>> {
        Ok(Box::new(Endpoint {
            map: map.open()?,
            steps: Vec::new(),
            records: vec![0; DUMP_BYTES],
        }))
    };
    filled(client, keys)
}

/// A map in a cgroup of its own. A closure that uses the cgroup alone would drop the endpoint, with which a volatile map ends.
pub struct Named {
    pub map: Map,
    pub cgroup: Cgroup,
}

impl Named {
    pub fn open(&self) -> Result<Map> {
        open(&self.cgroup)
    }
}

pub fn create_named(
    entries: u64,
    entry_size: usize,
    durability: Option<Durability>,
    resources: &StoreResources,
) -> Result<Named> {
    create_with(entries, entry_size, resources, |options| match durability {
        Some(durability) => options.durable(durability),
        None => options,
    })
}

/// `add`: options that not all maps have.
pub fn create_with(
    entries: u64,
    entry_size: usize,
    resources: &StoreResources,
    add: impl FnOnce(Options) -> Options,
) -> Result<Named> {
    let cgroup = resources.create_cgroup()?;
    let capacity = entries * (OVERHEAD + entry_size as u64);
    let options = add(options(&cgroup)?.capacity(capacity.max(LEAST_CAPACITY)));
    let map = options.create(true).exclusive(true).open()?;
    Ok(Named { map, cgroup })
}

/// The options of the map in this cgroup.
pub fn options(cgroup: &Cgroup) -> Result<Options> {
    Ok(Map::named(NAME).scope(Scope::at(cgroup.path())?))
}

pub fn open(cgroup: &Cgroup) -> Result<Map> {
    Ok(options(cgroup)?.open()?)
}

/// It calls the kernel, without the allocations and the checks of the library.
struct Endpoint {
    map: Map,
    steps: Vec<Step>,
    records: Vec<u8>,
}

impl Endpoint {
    /// # Safety
    /// `argument` is the structure of this command, and all addresses in it are valid for it.
    unsafe fn call<T>(&self, command: libc::Ioctl, argument: &mut T) -> Result<i32, Errno> {
        // SAFETY: by the caller.
        Errno::result(unsafe { libc::ioctl(self.map.as_raw_fd(), command, argument) })
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
        let count = batch.count as usize;
        ensure!(count == keys.len(), "a batch ended after {count} gets");
        for step in &steps {
            let error = Errno::from_raw(-step.result);
            ensure!(step.result == 0, "cannot get a value in a batch: {error}");
            expect_length(step.value_length)?;
        }
        self.steps = steps;
        Ok(())
    }

    fn dump(&mut self, calls: &mut Stopwatch, visit: &mut Visit) -> Result<()> {
        let mut cursor = Cursor::default();
        loop {
            let mut part = Dump::new(0, cursor, &mut self.records);
            // SAFETY: there is room for as many bytes as the length says.
            let result = calls.time(|| unsafe { self.call(map::DUMP, &mut part) });
            result.context("cannot dump a map")?;
            if part.count == 0 {
                return Ok(());
            }
            let (length, count) = (part.length as usize, part.count as usize);
            ensure!(
                length == count * RECORD,
                "{count} records in {length} bytes"
            );
            let records = self.records.get(..length);
            let records = records.context("a dump is longer than its buffer")?;
            for record in records.chunks_exact(RECORD) {
                let (key, value) = record[Record::SIZE..].split_at(KEY_SIZE);
                visit(key, value.try_into()?)?;
            }
            cursor = part.cursor;
        }
    }
}
