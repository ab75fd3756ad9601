// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of a mapped map without its module, in memory that processes share and that the code for tests writes: lookups on a machine that
//! loads no module.

use std::rc::Rc;
use std::sync::atomic::{AtomicU32, AtomicU64};

use anyhow::{Context as _, Result, bail};
use sluice_abi::map::DEFAULT_CELL;
use sluice_table::writer::{Place, Writer};
use sluice_table::{Lookup, Memory, Reader, Shape};
use sluice_testkit::shared::SharedWords;

use super::store::{Client, Key, Store, StoreResources, Value, key, number_of, value};

/// No entry expires.
const NEVER: u64 = u64::MAX;

pub fn create(keys: u64, _: &StoreResources) -> Result<Rc<dyn Store>> {
    let table = Shape::table_for(keys, DEFAULT_CELL).context("too many keys")?;
    let shape = Shape::new(0x1234_5678, table, DEFAULT_CELL).context("no table")?;
    let words = SharedWords::new(table as usize / size_of::<u64>())?;
    let memory = Words(Rc::new(words));
    let writer = Writer::new(memory.clone(), shape);
    let insert = |number| writer.insert(&key(number), &value(number, 0), 1, NEVER);
    let places: Rc<[Place]> = (0..keys).map(insert).collect();
    let client = move || -> Result<Box<dyn Client>> {
        Ok(Box::new(User {
            reader: Reader::new(memory.clone(), shape),
            writer: Writer::new(memory.clone(), shape),
            places: Rc::clone(&places),
        }))
    };
    Ok(Rc::new(client))
}

/// Words that are not checked to be in the table: the readers and writers of the module do not, either.
#[derive(Clone)]
struct Words(Rc<SharedWords>);

impl Words {
    fn at(&self, at: u64) -> *const u8 {
        self.0
            .words()
            .as_ptr()
            .cast::<u8>()
            .wrapping_add(at as usize)
    }
}

impl Memory for Words {
    fn half(&self, at: u64) -> &AtomicU32 {
        // SAFETY: aligned and within the table, which lives as long as self, and is only accessed as atomics.
        unsafe { &*self.at(at).cast() }
    }

    fn word(&self, at: u64) -> &AtomicU64 {
        // SAFETY: as above.
        unsafe { &*self.at(at).cast() }
    }
}

struct User {
    reader: Reader<Words>,
    writer: Writer<Words>,
    places: Rc<[Place]>,
}

impl Client for User {
    fn get(&mut self, key: &Key, value: &mut Value) -> Result<()> {
        match self.reader.get(key, value, || 0) {
            Lookup::Value(_) => Ok(()),
            other => bail!("the table has {other:?}"),
        }
    }

    fn set(&mut self, key: &Key, value: &Value) -> Result<()> {
        let place = self.places[number_of(key)? as usize];
        self.writer.update(place, key, value, 1);
        Ok(())
    }
}
