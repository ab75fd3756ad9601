// SPDX-License-Identifier: MIT OR Apache-2.0
//! Maps of the module through the library: durable in both modes, and volatile ones. Each client has an endpoint of its own.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sluice::map::{Durability, Map, Options, Outcome};
use sluice::{Channel, Scope};
use sluice_testkit::cgroup;
use sluiced_protocol::MapName;

use super::daemon::Daemon;
use super::resources::{DurableStore, Resources};
use crate::suites::map::store::{Client, KEY_SIZE, Key, Store, VALUE_SIZE, Value, key, value};

const NAME: &str = "bench";
/// Several commits in each round. That of Redis is a second.
const INTERVAL: Duration = Duration::from_millis(100);
/// Of each entry, beside its key and its value.
const OVERHEAD: u64 = 512;
const LEAST_CAPACITY: u64 = 1 << 22;
/// Entries of a batch, as in `sluice map import`.
pub const BATCH: usize = 256;

pub fn create_always(keys: u64, resources: &Resources) -> Result<Box<dyn DurableStore>> {
    create(keys, resources, Some(Durability::always()))
}

pub fn create_interval(keys: u64, resources: &Resources) -> Result<Box<dyn DurableStore>> {
    create(keys, resources, Some(Durability::interval(INTERVAL)))
}

pub fn create_volatile(keys: u64, resources: &Resources) -> Result<Box<dyn DurableStore>> {
    create(keys, resources, None)
}

fn create(
    keys: u64,
    resources: &Resources,
    durability: Option<Durability>,
) -> Result<Box<dyn DurableStore>> {
    // A volatile map is measured beside an idle daemon, too.
    resources.environment()?.daemon()?;
    let bytes = (KEY_SIZE + VALUE_SIZE) as u64;
    let map = Named::create(resources, keys * (OVERHEAD + bytes), durability)?;
    let keys: Vec<_> = (0..keys)
        .map(|number| (key(number), value(number, 0)))
        .collect();
    set_in_batches(
        &map.map,
        keys.iter().map(|(key, value)| (&key[..], &value[..])),
    )?;
    Ok(Box::new(map))
}

/// In batches of the size that the daemon and `sluice map import` use.
pub fn set_in_batches<'a>(
    map: &Map,
    entries: impl Iterator<Item = (&'a [u8], &'a [u8])>,
) -> Result<()> {
    let mut batch = map.batch();
    for (key, value) in entries {
        batch = batch.set(key, value);
        if batch.len() == BATCH {
            run(std::mem::replace(&mut batch, map.batch()))?;
        }
    }
    run(batch)
}

fn run(batch: sluice::map::Batch<'_>) -> Result<()> {
    for outcome in batch.run() {
        if let Outcome::Set(result) = outcome {
            result.context("cannot set an entry of a batch")?;
        }
    }
    Ok(())
}

/// A map in a cgroup of its own; unlinked when dropped.
pub struct Named {
    pub map: Map,
    cgroup: PathBuf,
    is_durable: bool,
}

impl Named {
    pub fn create(
        resources: &Resources,
        capacity: u64,
        durability: Option<Durability>,
    ) -> Result<Self> {
        let cgroup = resources.create_cgroup()?.path().to_path_buf();
        let mut options = Options::new().capacity(capacity.max(LEAST_CAPACITY));
        if let Some(durability) = durability {
            options = options.durable(durability);
        }
        let channel = channel(&cgroup)?;
        let map = options.open(&channel.options().create(true).exclusive(true))?;
        Ok(Self {
            map,
            cgroup,
            is_durable: durability.is_some(),
        })
    }

    /// As the daemon knows it.
    pub fn name(&self) -> Result<MapName> {
        let path = self.cgroup.strip_prefix(cgroup::mount_point()?)?;
        let path = Path::new("/").join(path);
        Ok(MapName {
            path: path.as_os_str().as_encoded_bytes().into(),
            name: NAME.into(),
        })
    }

    /// Drops the kernel's copy. The map stays stored.
    pub fn detach(mut self, daemon: &Daemon) -> Result<Stored> {
        self.map.sync()?;
        let name = self.name()?;
        daemon.detach(&name)?;
        self.is_durable = false;
        Ok(Stored {
            name,
            cgroup: self.cgroup.clone(),
        })
    }

    /// Another endpoint.
    pub fn open(&self) -> Result<Map> {
        Ok(Options::new().open(&channel(&self.cgroup)?.options())?)
    }
}

/// A durable map that the kernel does not have.
pub struct Stored {
    pub name: MapName,
    cgroup: PathBuf,
}

impl Stored {
    /// After it was attached.
    pub fn open(&self) -> Result<Map> {
        Ok(Options::new().open(&channel(&self.cgroup)?.options())?)
    }
}

fn channel(cgroup: &Path) -> Result<Channel> {
    Ok(Channel::map(NAME)?.in_scope(Scope::at(cgroup)?))
}

impl Drop for Named {
    fn drop(&mut self) {
        // A volatile one exists as long as its endpoints.
        if !self.is_durable {
            return;
        }
        let unlinked = channel(&self.cgroup).and_then(|channel| Ok(channel.unlink()?));
        if let Err(error) = unlinked {
            eprintln!("cannot unlink a durable map: {error:#}");
        }
    }
}

impl Store for Named {
    fn client(&self) -> Result<Box<dyn Client>> {
        Ok(Box::new(Endpoint(self.open()?)))
    }
}

impl DurableStore for Named {
    fn settle(&self) -> Result<()> {
        if self.is_durable {
            self.map.sync()?;
        }
        Ok(())
    }

    fn is_stored_by_daemon(&self) -> bool {
        self.is_durable
    }
}

struct Endpoint(Map);

impl Client for Endpoint {
    fn get(&mut self, key: &Key, value: &mut Value) -> Result<()> {
        let entry = self.0.get(key)?.context("a key is missing")?;
        let length = entry.value.len();
        ensure!(length == VALUE_SIZE, "a value has {length} bytes");
        value.copy_from_slice(&entry.value);
        Ok(())
    }

    fn set(&mut self, key: &Key, value: &Value) -> Result<()> {
        self.0.set(key, value)?;
        Ok(())
    }
}
