// SPDX-License-Identifier: MIT OR Apache-2.0
//! Maps of the module through the library: durable in both modes, and volatile ones. Each client has an endpoint of its own.

use std::rc::Rc;

use anyhow::{Context, Result, ensure};
use sluice::map::{Durability, Map, Outcome};

use super::daemon::Daemon;
use super::resources::DurableResources;
use crate::suites::map::sluice_map::{Named, create_named, options};
use crate::suites::map::store::{Client, KEY_SIZE, Key, Store, VALUE_SIZE, Value, filled};

const BATCH: usize = 256;

/// Without durability: a volatile map beside the daemon.
pub fn create(
    keys: u64,
    resources: &DurableResources,
    durability: Option<Durability>,
) -> Result<Rc<dyn Store>> {
    let daemon = resources.daemon()?;
    let named = create_named(keys, KEY_SIZE + VALUE_SIZE, durability, &resources.common)?;
    let daemon = durability.map(|_| Rc::clone(daemon));
    filled(Stored { named, daemon }, keys)
}

/// In batches of the size that `sluice map import` uses.
pub fn set_all<K: AsRef<[u8]>, V: AsRef<[u8]>>(
    map: &Map,
    mut entries: impl Iterator<Item = Result<(K, V)>>,
) -> Result<()> {
    loop {
        let part = entries.by_ref().take(BATCH).collect::<Result<Vec<_>>>()?;
        let mut batch = map.batch();
        for (key, value) in &part {
            batch = batch.set(key, value);
        }
        for outcome in batch.run() {
            if let Outcome::Set(result) = outcome {
                result.context("cannot set an entry of a batch")?;
            }
        }
        if part.len() < BATCH {
            return Ok(());
        }
    }
}

struct Stored {
    named: Named,
    daemon: Option<Rc<Daemon>>,
}

impl Drop for Stored {
    fn drop(&mut self) {
        if self.daemon.is_none() {
            return;
        }
        let unlinked = options(&self.named.cgroup).and_then(|map| Ok(map.unlink()?));
        if let Err(error) = unlinked {
            eprintln!("cannot unlink a durable map: {error:#}");
        }
    }
}

impl Store for Stored {
    fn client(&self) -> Result<Box<dyn Client>> {
        Ok(Box::new(Endpoint(self.named.open()?)))
    }

    fn helper(&self) -> Result<(u64, u32)> {
        match &self.daemon {
            Some(daemon) => Ok((daemon.cpu_ns()?, daemon.commits()?)),
            None => Ok((0, 0)),
        }
    }

    fn settle(&self) -> Result<()> {
        let Some(daemon) = &self.daemon else {
            return Ok(());
        };
        self.named.map.sync()?;
        daemon.await_idle()
    }
}

struct Endpoint(Map);

impl Client for Endpoint {
    fn get(&mut self, key: &Key, value: &mut Value) -> Result<()> {
        let entry = self.0.get_into(key, value)?.context("a key is missing")?;
        ensure!(entry.len == VALUE_SIZE, "a value has {} bytes", entry.len);
        Ok(())
    }

    fn set(&mut self, key: &Key, value: &Value) -> Result<()> {
        self.0.set(key, value)?;
        Ok(())
    }

    fn set_batch(&mut self, keys: &[Key], values: &[Value]) -> Result<()> {
        set_all(&self.0, keys.iter().zip(values).map(Ok))
    }
}
