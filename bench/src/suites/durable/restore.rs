// SPDX-License-Identifier: MIT OR Apache-2.0
//! The time to have a map with all of its entries in the kernel: attached by the daemon, imported from a file as `sluice map
//! import` does, or set from the memory of a process.

use std::cell::OnceCell;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use sluice::map::{Durability, Map};
use sluice_testkit::cgroup;
use sluiced_protocol::{MapName, Request, Selection};

use super::resources::DurableResources;
use super::sluice_map::set_all;
use crate::harness::rounds::{Job, Measurement};
use crate::suites::map::sluice_map::{NAME, Named, create_named, open};
use crate::suites::map::store::Stopwatch;

const KEY: usize = 16;
/// Of a key and its value.
pub const ENTRY: usize = 100;
/// Of the map while it is filled.
const INTERVAL: Duration = Duration::from_secs(1);

/// Restores the map, and returns the time that it took.
type Restoring = Box<dyn Fn() -> Result<u64>>;
/// Prepares what this many entries are restored from.
pub type Prepare = fn(&Rc<DurableResources>, u64) -> Result<Restoring>;

pub struct Restore {
    pub prepare: Prepare,
    pub entries: u64,
    pub resources: Rc<DurableResources>,
    pub restoring: OnceCell<Restoring>,
}

impl Job for Restore {
    fn check(&self) -> Result<()> {
        let restoring = (self.prepare)(&self.resources, self.entries)?;
        let restore = self.restoring.get_or_init(|| restoring);
        restore().map(drop)
    }

    fn measure(&self) -> Result<Measurement> {
        let restoring = self.restoring.get();
        let restore = restoring.context("the check was not successful")?;
        Ok(Measurement {
            elapsed_ns: restore()?,
            messages: self.entries,
            bytes: self.entries * ENTRY as u64,
            ..Measurement::default()
        })
    }
}

/// By the daemon, from its store: a durable map with all entries, which only the daemon has.
pub fn attach(resources: &Rc<DurableResources>, entries: u64) -> Result<Restoring> {
    let resources = Rc::clone(resources);
    let durability = Durability::interval(INTERVAL);
    let Named { map, cgroup } = create_named(entries, ENTRY, Some(durability), &resources.common)?;
    set_all(&map, all(entries))?;
    map.sync()?;
    let path = cgroup.path().strip_prefix(cgroup::mount_point()?)?;
    let path = Path::new("/").join(path);
    let map = Selection::Map(MapName {
        path: path.as_os_str().as_encoded_bytes().into(),
        name: NAME.into(),
    });
    let (attach, detach) = (Request::Attach(map.clone()), Request::Detach(map));
    resources.daemon()?.call(&detach)?;
    Ok(Box::new(move || {
        let daemon = resources.daemon()?;
        daemon.await_idle()?;
        let mut watch = Stopwatch::default();
        watch.time(|| daemon.call(&attach))?;
        expect_entries(&open(&cgroup)?, entries)?;
        daemon.call(&detach)?;
        Ok(watch.elapsed_ns)
    }))
}

pub fn import(resources: &Rc<DurableResources>, entries: u64) -> Result<Restoring> {
    let path = resources.disk()?.folder("import")?.join("entries.json");
    let mut file = BufWriter::new(File::create(&path)?);
    for number in 0..entries {
        let (key, value) = entry(number);
        writeln!(file, r#"{{"key":"{key}","value":"{value}"}}"#)?;
    }
    file.flush()?;
    into_new_map(resources, entries, move |map| {
        let lines = BufReader::new(File::open(&path)?).lines();
        let entries = lines.map(|line| {
            let Line { key, value } = serde_json::from_str(&line?)?;
            Ok((key, value))
        });
        set_all(map, entries)
    })
}

pub fn batches(resources: &Rc<DurableResources>, entries: u64) -> Result<Restoring> {
    into_new_map(resources, entries, move |map| set_all(map, all(entries)))
}

fn into_new_map(
    resources: &Rc<DurableResources>,
    entries: u64,
    restore: impl Fn(&Map) -> Result<()> + 'static,
) -> Result<Restoring> {
    let resources = Rc::clone(resources);
    Ok(Box::new(move || {
        resources.daemon()?.await_idle()?;
        let mut watch = Stopwatch::default();
        let named = create_named(entries, ENTRY, None, &resources.common)?;
        watch.time(|| restore(&named.map))?;
        expect_entries(&named.map, entries)?;
        Ok(watch.elapsed_ns)
    }))
}

fn expect_entries(map: &Map, expected: u64) -> Result<()> {
    let found = map.info()?.entries;
    ensure!(found == expected, "restored {found} of {expected} entries");
    for number in [0, expected / 2, expected - 1] {
        let (key, value) = entry(number);
        let entry = map.get(&key)?.context("an entry is missing")?;
        ensure!(entry.value == value.as_bytes(), "{key} has another value");
    }
    Ok(())
}

fn all(entries: u64) -> impl Iterator<Item = Result<(String, String)>> {
    (0..entries).map(|number| Ok(entry(number)))
}

fn entry(number: u64) -> (String, String) {
    let key = format!("{number:0KEY$}");
    let value = format!("{number:x>width$}", width = ENTRY - KEY);
    (key, value)
}

/// A line of the file, as `sluice map export` writes it.
#[derive(Deserialize)]
struct Line {
    key: String,
    value: String,
}
