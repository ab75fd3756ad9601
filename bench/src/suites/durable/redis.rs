// SPDX-License-Identifier: MIT OR Apache-2.0
//! Redis over a Unix socket with its append-only file on the disk, which it writes before it answers: with fsync each time, or
//! once per second. Without snapshots. The scheduler places the server, as it places sluiced.

use std::fs::{self, File};
use std::path::PathBuf;

use anyhow::Result;

use super::no_disk;
use super::resources::{DurableStore, Resources};
use crate::harness::rounds::Skipped;
use crate::suites::map::redis::{self, Redis};
use crate::suites::map::store::{Client, Store, key, value};

/// The folder of the append-only files, by default.
const FILES: &str = "appendonlydir";

pub fn unavailable(resources: &Resources) -> Option<Skipped> {
    no_disk(resources).or_else(redis::missing)
}

pub fn create_always(keys: u64, resources: &Resources) -> Result<Box<dyn DurableStore>> {
    create(keys, resources, "always")
}

pub fn create_everysec(keys: u64, resources: &Resources) -> Result<Box<dyn DurableStore>> {
    create(keys, resources, "everysec")
}

fn create(keys: u64, resources: &Resources, fsync: &str) -> Result<Box<dyn DurableStore>> {
    let folder = resources.environment()?.folder(&format!("redis-{fsync}"))?;
    let confinement = &resources.confinement;
    let server = Redis::start_with_file(&folder, fsync, confinement)?;
    let mut client = server.client()?;
    let numbers = 0..keys;
    let values: Vec<_> = numbers.clone().map(|number| value(number, 0)).collect();
    client.set_batch(&numbers.map(key).collect::<Vec<_>>(), &values)?;
    Ok(Box::new(Durable { server, folder }))
}

struct Durable {
    server: Redis,
    folder: PathBuf,
}

impl Store for Durable {
    fn client(&self) -> Result<Box<dyn Client>> {
        self.server.client()
    }

    fn helper_ns(&self) -> Result<u64> {
        self.server.helper_ns()
    }
}

impl DurableStore for Durable {
    /// Its files, which the server synchronizes once per second only.
    fn settle(&self) -> Result<()> {
        for entry in fs::read_dir(self.folder.join(FILES))? {
            File::open(entry?.path())?.sync_all()?;
        }
        Ok(())
    }
}
