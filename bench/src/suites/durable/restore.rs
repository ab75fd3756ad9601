// SPDX-License-Identifier: MIT OR Apache-2.0
//! The time to have a map with all of its entries in the kernel: attached by the daemon, imported from a file as `sluice map
//! import` does, or set from the memory of a process.

use std::cell::OnceCell;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use sluice::map::{Durability, Map};
use sluice_testkit::cgroup::{self, Cgroup};
use sluiced_protocol::{MapName, Request, Selection};

use super::resources::Resources;
use super::sluice_map;
use crate::harness::rounds::{Job, Measurement};
use crate::suites::map::sluice_map::{NAME, Named, create_named, open};
use crate::suites::map::store::Stopwatch;

const KEY: usize = 16;
/// Of a key and its value.
pub const ENTRY: usize = 100;
/// Of the map while it is filled.
const INTERVAL: Duration = Duration::from_secs(1);

/// What the entries are restored from.
pub enum Source {
    /// By the daemon, from its store.
    Stored(Cgroup, Selection),
    /// Lines of JSON, as `sluice map import` sets them.
    File(PathBuf),
    Memory,
}

pub struct Restore {
    pub make_source: fn(&Self) -> Result<Source>,
    pub entries: u64,
    pub resources: Rc<Resources>,
    pub source: OnceCell<Source>,
}

impl Restore {
    /// A durable map with all entries, which only the daemon has.
    pub fn store(&self) -> Result<Source> {
        let Named { map, cgroup } = self.create(Some(Durability::interval(INTERVAL)))?;
        self.set_all(&map)?;
        map.sync()?;
        let path = cgroup.path().strip_prefix(cgroup::mount_point()?)?;
        let path = Path::new("/").join(path);
        let name = MapName {
            path: path.as_os_str().as_encoded_bytes().into(),
            name: NAME.into(),
        };
        let map = Selection::Map(name);
        let daemon = self.resources.daemon()?;
        daemon.call(&Request::Detach(map.clone()))?;
        Ok(Source::Stored(cgroup, map))
    }

    pub fn write_file(&self) -> Result<Source> {
        let path = self.resources.disk()?.folder("import")?;
        let path = path.join("entries.json");
        let mut file = BufWriter::new(File::create(&path)?);
        for number in 0..self.entries {
            let (key, value) = entry(number);
            writeln!(file, r#"{{"key":"{key}","value":"{value}"}}"#)?;
        }
        file.flush()?;
        Ok(Source::File(path))
    }

    fn create(&self, durability: Option<Durability>) -> Result<Named> {
        create_named(self.entries, ENTRY, durability, &self.resources.common)
    }

    fn set_all(&self, map: &Map) -> Result<()> {
        sluice_map::set_all(map, (0..self.entries).map(|number| Ok(entry(number))))
    }

    /// Restores the map, and returns the time that it took.
    fn run(&self) -> Result<u64> {
        let daemon = self.resources.daemon()?;
        daemon.await_idle()?;
        let mut watch = Stopwatch::default();
        match self.source.get().context("the check was not successful")? {
            Source::Stored(cgroup, map) => {
                let attach = Request::Attach(map.clone());
                watch.time(|| daemon.call(&attach))?;
                self.expect_entries(&open(cgroup)?)?;
                daemon.call(&Request::Detach(map.clone()))?;
            }
            source => {
                let named = self.create(None)?;
                watch.time(|| match source {
                    Source::File(path) => import(&named.map, path),
                    _ => self.set_all(&named.map),
                })?;
                self.expect_entries(&named.map)?;
            }
        }
        Ok(watch.elapsed_ns)
    }

    fn expect_entries(&self, map: &Map) -> Result<()> {
        let (found, expected) = (map.info()?.entries, self.entries);
        ensure!(
            found == expected,
            "{found} of {expected} entries were restored"
        );
        for number in [0, expected / 2, expected - 1] {
            let (key, value) = entry(number);
            let entry = map.get(&key)?.context("an entry is missing")?;
            ensure!(entry.value == value.as_bytes(), "{key} has another value");
        }
        Ok(())
    }
}

impl Job for Restore {
    fn check(&self) -> Result<()> {
        let source = (self.make_source)(self)?;
        self.source.get_or_init(|| source);
        self.run().map(drop)
    }

    fn measure(&self) -> Result<Measurement> {
        Ok(Measurement {
            elapsed_ns: self.run()?,
            messages: self.entries,
            bytes: self.entries * ENTRY as u64,
            ..Measurement::default()
        })
    }
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

fn import(map: &Map, path: &Path) -> Result<()> {
    let lines = BufReader::new(File::open(path)?).lines();
    let entries = lines.map(|line| {
        let Line { key, value } = serde_json::from_str(&line?)?;
        Ok((key, value))
    });
    sluice_map::set_all(map, entries)
}
