// SPDX-License-Identifier: MIT OR Apache-2.0
//! An endpoint of a map, with its watcher.

use std::time::Duration;

use sluice::map::{
    self, DeleteOptions, Durability, Entry, Event, Outcome, ReadError, Set, SetOptions, WatchFrom,
    Watcher, WriteError,
};

use crate::peer::{Endpoint, Opened};
use crate::words::{self, Settings, failed, refused, within};

pub struct Map {
    map: map::Map,
    watcher: Option<Watcher>,
}

impl Map {
    pub fn open(name: &str, side: &str, settings: Settings<'_>) -> Opened {
        let mut options = settings
            .apply(map::Map::named(name))
            .entries(settings.number("entries").unwrap_or(0))
            .events(settings.number("events").unwrap_or(0) as u32);
        if settings.has("durable") {
            options = options.durable(durability(settings));
        }
        let opened = match side {
            "reader" => options.open_reader(),
            "writer" => options.open_writer(),
            _ => options.open(),
        };
        let map = opened.map_err(|error| refused(error.raw_os_error()))?;
        Ok(Box::new(Self { map, watcher: None }))
    }

    fn set(&self, key: &str, value: &str, settings: Settings<'_>) -> String {
        let mut options = SetOptions::new().nowait(settings.has("nowait"));
        if let Some(version) = settings.number("if") {
            options = options.if_version(version);
        }
        if let Some(time) = settings.number("ttl") {
            options = options.time_to_live(Duration::from_millis(time));
        }
        let (key, value) = (words::bytes(key), words::bytes(value));
        of_set(self.map.set_with(key, value, options))
    }

    fn delete(&self, key: &str, settings: Settings<'_>) -> String {
        let mut options = DeleteOptions::new().nowait(settings.has("nowait"));
        if let Some(version) = settings.number("if") {
            options = options.if_version(version);
        }
        of_delete(self.map.delete_with(words::bytes(key), options))
    }

    fn get_into(&self, key: &str, room: usize) -> String {
        let mut room = vec![0; room];
        match self.map.get_into(words::bytes(key), &mut room) {
            Ok(Some(info)) => {
                let value = words::word(&room[..info.len]);
                format!("value {value} {}", info.version)
            }
            Err(ReadError::BufferTooSmall { len, .. }) => format!("too-small {len}"),
            other => of_get(other.map(|_| None)),
        }
    }

    /// The keys are numbers.
    fn fill(&self, count: u64, value: &str) -> String {
        let value = words::bytes(value);
        for number in 0..count {
            if let Err(error) = self.map.set(number.to_string(), &value) {
                return format!("set {number} {}", of_set(Err(error)));
            }
        }
        format!("set {count}")
    }

    fn dump(&self) -> Result<String, ReadError> {
        let mut entries = Vec::new();
        for entry in self.map.entries() {
            let (key, entry) = entry?;
            entries.push(format!(
                " {}={}",
                words::word(&key),
                words::word(&entry.value)
            ));
        }
        entries.sort_unstable();
        Ok(format!("entries{}", entries.concat()))
    }

    fn count(&self) -> Result<String, ReadError> {
        let keys: Result<Vec<_>, _> = self.map.keys().collect();
        Ok(format!("entries {}", keys?.len()))
    }

    /// Operations such as set:KEY:VALUE.
    fn batch(&self, operations: &[&str]) -> Option<String> {
        let mut batch = self.map.batch();
        for operation in operations {
            let words: Vec<&str> = operation.split(':').collect();
            batch = match *words {
                ["get", key] => batch.get(key),
                ["set", key, value] => batch.set(key, value),
                ["set", key, value, version] => {
                    let options = SetOptions::new().if_version(version.parse().ok()?);
                    batch.set_with(key, value, options)
                }
                ["delete", key] => batch.delete(key),
                _ => return None,
            };
        }
        let results = batch.run().into_iter().map(|outcome| match outcome {
            Outcome::Get(got) => of_get(got),
            Outcome::Set(set) => of_set(set),
            Outcome::Delete(deleted) => of_delete(deleted),
        });
        Some(results.collect::<Vec<_>>().join(" ; "))
    }

    fn sync(&self, number: &str) -> Option<String> {
        let synced = match number {
            "now" => self.map.sync(),
            number => self.map.sync_to(number.parse().ok()?),
        };
        Some(match synced {
            Ok(stored) => format!("stored {stored}"),
            Err(error) => failed(error.raw_os_error(), "full"),
        })
    }

    fn watch(&mut self, after: &str) -> Option<String> {
        let from = match after {
            "now" => WatchFrom::Now,
            number => WatchFrom::After(number.parse().ok()?),
        };
        self.watcher = None;
        Some(match self.map.watch(from) {
            Ok(watcher) => {
                let since = watcher.since();
                self.watcher = Some(watcher);
                format!("watching {since}")
            }
            Err(error) => refused(error.raw_os_error()),
        })
    }
}

fn durability(settings: Settings<'_>) -> Durability {
    let time = |key| settings.number(key).map(Duration::from_millis);
    let durability = time("interval").map_or_else(Durability::always, Durability::interval);
    match time("deadline") {
        Some(deadline) => durability.deadline(deadline),
        None => durability,
    }
}

impl Endpoint for Map {
    fn execute(&mut self, words: &[&str]) -> Option<String> {
        let read = |error: ReadError| failed(error.raw_os_error(), "full");
        Some(match *words {
            ["get", key] => of_get(self.map.get(words::bytes(key))),
            ["get-into", key, room] => self.get_into(key, room.parse().ok()?),
            ["set", key, value, ref settings @ ..] => self.set(key, value, Settings(settings)),
            ["delete", key, ref settings @ ..] => self.delete(key, Settings(settings)),
            ["fill", count, value] => self.fill(count.parse().ok()?, value),
            ["dump"] => self.dump().unwrap_or_else(read),
            ["count"] => self.count().unwrap_or_else(read),
            ["batch", ref operations @ ..] => self.batch(operations)?,
            ["sync", number] => self.sync(number)?,
            ["watch", after] => self.watch(after)?,
            ["event", ref time @ ..] => {
                let watcher = self.watcher.as_mut()?;
                match within!(time, watcher, recv | try_recv | recv_timeout()) {
                    Ok(event) => of_event(&event),
                    Err(error) => failed(error.raw_os_error(), "empty"),
                }
            }
            _ => return None,
        })
    }
}

fn of_get(got: Result<Option<Entry>, ReadError>) -> String {
    match got {
        Ok(Some(entry)) => {
            let expires = entry.time_to_live.map_or("", |_| " expires");
            let value = words::word(&entry.value);
            format!("value {value} {}{expires}", entry.version)
        }
        Ok(None) => "none".to_owned(),
        Err(error) => failed(error.raw_os_error(), "full"),
    }
}

fn of_set(set: Result<Set, WriteError>) -> String {
    match set {
        Ok(set) if set.created => format!("created {}", set.version),
        Ok(set) => format!("updated {}", set.version),
        Err(error) => of_write(&error),
    }
}

fn of_delete(deleted: Result<Option<u64>, WriteError>) -> String {
    match deleted {
        Ok(Some(number)) => format!("deleted {number}"),
        Ok(None) => "none".to_owned(),
        Err(error) => of_write(&error),
    }
}

fn of_write(error: &WriteError) -> String {
    let refused = failed(error.raw_os_error(), "full");
    match error {
        WriteError::VersionMismatch { found, .. } => format!("{refused} {found}"),
        _ => refused,
    }
}

fn of_event(event: &Event) -> String {
    let key = words::word(&event.key);
    let words = format!(
        "{} {key} {} {}",
        event.change, event.sequence, event.version
    );
    match event.missed {
        0 => words,
        missed => format!("{words} missed {missed}"),
    }
}
