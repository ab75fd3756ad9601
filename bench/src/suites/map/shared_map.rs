// SPDX-License-Identifier: MIT OR Apache-2.0
//! The naive store kernel/baseline/shared_map.c: as in the report with a mutex, and with the reader-writer semaphore that
//! the report could not compile; without files and with them. Each client has a socket.

use std::fs;
use std::path::Path;
use std::rc::Rc;

use anyhow::{Context, Result, bail};
use sluice_testkit::module::SHARED_MAP;
use sluice_testkit::shared_map::{self, Answer};

use super::store::{Client, Key, Store, StoreResources, Value, filled};
use crate::harness::rounds::Skipped;

const PARAMETERS: &str = "/sys/module/shared_map/parameters";

pub fn unavailable(_: &StoreResources) -> Option<Skipped> {
    let loaded = Path::new(SHARED_MAP.node).exists();
    (!loaded).then(|| Skipped::unavailable(SHARED_MAP.name, SHARED_MAP.how_to_load()))
}

pub fn unavailable_files(resources: &StoreResources) -> Option<Skipped> {
    unavailable(resources).or_else(|| {
        let directory = fs::read_to_string(format!("{PARAMETERS}/directory")).unwrap_or_default();
        let directory = directory.trim_end();
        let reason = format!("the directory of the module, {directory}, does not exist");
        (!Path::new(directory).exists()).then(|| Skipped::unavailable(SHARED_MAP.name, reason))
    })
}

pub fn create(keys: u64, rwsem: bool, files: bool) -> Result<Rc<dyn Store>> {
    for (name, value) in [("rwsem", rwsem), ("files", files)] {
        let path = format!("{PARAMETERS}/{name}");
        let text = if value { "Y" } else { "N" };
        fs::write(&path, text).with_context(|| format!("cannot write {path}; run as root"))?;
    }
    let client = || -> Result<Box<dyn Client>> {
        let client = shared_map::Client::connect();
        let client = client.context("cannot create a socket of the module shared_map")?;
        Ok(Box::new(Socket(client)))
    };
    filled(client, keys)
}

struct Socket(shared_map::Client);

impl Client for Socket {
    fn get(&mut self, key: &Key, value: &mut Value) -> Result<()> {
        match self.0.get(key)? {
            Answer::Value(bytes) => {
                *value = bytes.try_into().context("a value has another length")?
            }
            other => bail!("cannot get a value: {other:?}"),
        }
        Ok(())
    }

    fn set(&mut self, key: &Key, value: &Value) -> Result<()> {
        match self.0.set(key, value)? {
            Answer::Created | Answer::Updated => Ok(()),
            other => bail!("cannot set a value: {other:?}"),
        }
    }
}
