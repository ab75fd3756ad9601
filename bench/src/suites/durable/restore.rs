// SPDX-License-Identifier: MIT OR Apache-2.0
//! The time to have a map with all of its entries in the kernel: attached by the daemon, imported from a file as `sluice map
//! import` does, or set from the memory of a process.

use std::cell::OnceCell;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use sluice::map::{Durability, Map};
use sluice_testkit::clock;

use super::durable_map::{BATCH, Named, Stored, set_in_batches};
use super::resources::Resources;
use crate::harness::rounds::{Job, Measurement};

const KEY: usize = 16;
/// Of a key and its value.
pub const ENTRY: usize = 100;
const OVERHEAD: u64 = 512;
/// Of the map while it is filled.
const INTERVAL: Duration = Duration::from_secs(1);
/// So many entries are made and set at a time, so that they do not need much memory.
const PART: u64 = 64 * BATCH as u64;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Means {
    /// By the daemon, from its store.
    Attach,
    /// Lines of JSON from a file, as `sluice map import` sets them.
    Import,
    /// From memory.
    Batches,
}

pub struct Restore {
    pub means: Means,
    pub entries: u64,
    pub resources: Rc<Resources>,
    source: OnceCell<Source>,
}

/// What the entries are restored from.
enum Source {
    Stored(Stored),
    File(PathBuf),
    Memory,
}

impl Restore {
    pub fn new(means: Means, entries: u64, resources: Rc<Resources>) -> Self {
        Self {
            means,
            entries,
            resources,
            source: OnceCell::new(),
        }
    }

    fn capacity(&self) -> u64 {
        self.entries * (OVERHEAD + ENTRY as u64)
    }

    fn make_source(&self) -> Result<Source> {
        match self.means {
            Means::Attach => self.store(),
            Means::Import => self.write_file(),
            Means::Batches => Ok(Source::Memory),
        }
    }

    /// A durable map with all entries, which only the daemon has.
    fn store(&self) -> Result<Source> {
        let daemon = self.resources.environment()?.daemon()?;
        let durability = Durability::interval(INTERVAL);
        let map = Named::create(&self.resources, self.capacity(), Some(durability))?;
        self.set_all(&map.map)?;
        Ok(Source::Stored(map.detach(daemon)?))
    }

    fn write_file(&self) -> Result<Source> {
        let folder = self.resources.environment()?.folder("import")?;
        let path = folder.join("entries.json");
        let mut file = BufWriter::new(File::create(&path)?);
        for number in 0..self.entries {
            let (key, value) = entry(number);
            writeln!(file, r#"{{"key":"{key}","value":"{value}"}}"#)?;
        }
        file.flush()?;
        Ok(Source::File(path))
    }

    fn set_all(&self, map: &Map) -> Result<()> {
        for begin in (0..self.entries).step_by(PART as usize) {
            let part: Vec<_> = (begin..self.entries.min(begin + PART)).map(entry).collect();
            set_in_batches(map, part.iter().map(pair))?;
        }
        Ok(())
    }

    /// Restores, and returns the map with the time that it took.
    fn restore(&self) -> Result<(Map, u64)> {
        let source = self.source.get().context("the check was not successful")?;
        let daemon = self.resources.environment()?.daemon()?;
        daemon.await_idle()?;
        if let Source::Stored(stored) = source {
            let begin = clock::now_ns();
            daemon.attach(&stored.name)?;
            let elapsed = clock::now_ns() - begin;
            return Ok((stored.open()?, elapsed));
        }
        let named = Named::create(&self.resources, self.capacity(), None)?;
        let map = named.open()?;
        let begin = clock::now_ns();
        match source {
            Source::File(path) => import(&map, path)?,
            _ => self.set_all(&map)?,
        }
        Ok((map, clock::now_ns() - begin))
    }

    fn run(&self) -> Result<u64> {
        let (map, elapsed) = self.restore()?;
        let found = map.info()?.entries;
        ensure!(
            found == self.entries,
            "{found} of {} entries were restored",
            self.entries
        );
        for number in [0, self.entries / 2, self.entries - 1] {
            let (key, value) = entry(number);
            let entry = map.get(&key)?.context("an entry is missing")?;
            ensure!(entry.value == value.as_bytes(), "{key} has another value");
        }
        drop(map);
        if let Some(Source::Stored(stored)) = self.source.get() {
            let daemon = self.resources.environment()?.daemon()?;
            daemon.detach(&stored.name)?;
        }
        Ok(elapsed)
    }
}

impl Job for Restore {
    fn check(&self) -> Result<()> {
        let source = self.make_source()?;
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

type TextEntry = (String, String);

fn entry(number: u64) -> TextEntry {
    let key = format!("{number:0KEY$}");
    let value = format!("{number:x>width$}", width = ENTRY - KEY);
    (key, value)
}

fn pair((key, value): &TextEntry) -> (&[u8], &[u8]) {
    (key.as_bytes(), value.as_bytes())
}

/// A line of the file, as `sluice map export` writes it.
#[derive(Deserialize)]
struct Line {
    key: String,
    value: String,
}

fn import(map: &Map, path: &PathBuf) -> Result<()> {
    let mut lines = BufReader::new(File::open(path)?).lines();
    loop {
        let part = lines.by_ref().take(BATCH).map(|line| {
            let Line { key, value } = serde_json::from_str(&line?)?;
            Ok((key, value))
        });
        let part = part.collect::<Result<Vec<TextEntry>>>()?;
        if part.is_empty() {
            return Ok(());
        }
        set_in_batches(map, part.iter().map(pair))?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_the_bytes_that_the_title_says() {
        for number in [0, 7, 999_999] {
            let (key, value) = entry(number);
            assert_eq!(key.len() + value.len(), ENTRY);
        }
        assert_ne!(entry(1), entry(10));
    }
}
