// SPDX-License-Identifier: MIT OR Apache-2.0
//! The map of the module with a table, in which its users look up values by the library. Sets are calls.

use std::rc::Rc;

use anyhow::{Context as _, Result, ensure};
use sluice::Map;
use sluice::map::MappedMap;

use super::sluice_map::create_with;
use super::store::{Client, KEY_SIZE, Key, Store, StoreResources, VALUE_SIZE, Value, filled};

pub fn create(keys: u64, resources: &StoreResources) -> Result<Rc<dyn Store>> {
    let map = create_with(keys, KEY_SIZE + VALUE_SIZE, resources, |options| {
        options.mapped(keys)
    })?;
    let client = move || -> Result<Box<dyn Client>> {
        let map = map.open()?;
        let table = map.mapped()?;
        Ok(Box::new(User { map, table }))
    };
    filled(client, keys)
}

struct User {
    map: Map,
    table: MappedMap,
}

impl Client for User {
    fn get(&mut self, key: &Key, value: &mut Value) -> Result<()> {
        let info = self.table.get_into(key, value)?.context("no such key")?;
        ensure!(info.len == VALUE_SIZE, "a value has {} bytes", info.len);
        Ok(())
    }

    fn set(&mut self, key: &Key, value: &Value) -> Result<()> {
        Ok(self.map.set(key, value).map(drop)?)
    }
}
