// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two buckets between the maps of both hosts: one is a copy of a durable map of host A, and both hosts change the other one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fastrand::Rng;
use sluice::Map;
use sluice::map::{Durability, WriteError};

use crate::support::until;

pub const BUCKETS: [&str; 2] = ["table", "shared"];

pub const OUT: &str = r#"
[[map]]
name = "table-a"
bucket = "table"
direction = "out"
[[map]]
name = "shared-a"
bucket = "shared"
direction = "both"
create = {}
"#;

pub const IN: &str = r#"
[[map]]
name = "table-b"
bucket = "table"
direction = "in"
create = {}
[[map]]
name = "shared-b"
bucket = "shared"
direction = "both"
create = {}
"#;

/// For each program: a map, the prefix of the keys that it changes there, and whether no other program changes them.
const PROGRAMS: [(&str, &str, bool); 5] = [
    ("table-a", "a", true),
    ("shared-a", "a", true),
    ("shared-b", "b", true),
    ("shared-a", "c", false),
    ("shared-b", "c", false),
];
/// With each prefix.
const KEYS: u32 = 30;
/// The mean time between changes of a program.
const PACE: Duration = Duration::from_millis(150);

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

/// The daemon that stores durable maps.
pub struct Keeper {
    child: Option<Child>,
    directory: PathBuf,
    log: PathBuf,
}

impl Keeper {
    pub fn start(directory: &Path, logs: &Path) -> Self {
        let mut keeper = Self {
            child: None,
            directory: directory.to_owned(),
            log: logs.join("sluiced.log"),
        };
        keeper.restart();
        keeper
    }

    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    pub fn restart(&mut self) {
        let program = std::env::var_os("SLUICED").expect("tests/bridge-cluster gives SLUICED");
        let log = File::options().append(true).create(true).open(&self.log);
        let child = Command::new(program)
            .arg("--store")
            .arg(self.directory.join("store"))
            .arg("--socket")
            .arg(self.directory.join("sluiced"))
            .stderr(log.unwrap())
            .stdout(Stdio::null())
            .spawn();
        self.child = Some(child.unwrap());
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Creates the durable map, which bridges do not create. Waits for the daemon.
pub fn create_durable() -> Map {
    let options = Map::named("table-a").create(true);
    let mut opened = None;
    until("the durable map is open", || {
        opened = options.clone().durable(Durability::always()).open().ok();
        opened.is_some()
    });
    opened.unwrap()
}

/// Changes keys of a map until the test ends.
pub struct Writer {
    map: Map,
    name: &'static str,
    prefix: &'static str,
    is_alone: bool,
    /// The last change of each key.
    last: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    values: BTreeSet<Vec<u8>>,
    count: u64,
}

impl Writer {
    pub fn all() -> Vec<Self> {
        let writer = |(name, prefix, is_alone)| {
            until("the bridge has created the map", || {
                Map::named(name).info().is_ok()
            });
            Self {
                map: Map::named(name).open().unwrap(),
                name,
                prefix,
                is_alone,
                last: BTreeMap::new(),
                values: BTreeSet::new(),
                count: 0,
            }
        };
        PROGRAMS.map(writer).into()
    }

    pub fn run(mut self, seed: u64, is_ended: Arc<AtomicBool>) -> JoinHandle<Self> {
        let mut rng = Rng::with_seed(seed);
        thread::spawn(move || {
            while !is_ended.load(Ordering::SeqCst) {
                self.change(&mut rng);
                thread::sleep(PACE.mul_f64(2.0 * rng.f64()));
            }
            self
        })
    }

    /// Returns when the change is acknowledged: that of a durable map when it is stored.
    fn change(&mut self, rng: &mut Rng) {
        let key = format!("{}{}", self.prefix, rng.u32(..KEYS)).into_bytes();
        self.count += 1;
        let value = format!("{} {} {}", self.name, self.prefix, self.count).into_bytes();
        let value = (rng.u32(..5) > 0).then_some(value);
        self.values.extend(value.clone());
        loop {
            let changed = match &value {
                Some(value) => self.map.set(&key, value).map(drop),
                None => self.map.delete(&key).map(drop),
            };
            match changed {
                Ok(()) => break,
                // The daemon was killed, and stores nothing until it runs again.
                Err(WriteError::Unacknowledged { number }) => {
                    while self.map.sync_to(number).is_err() {}
                    break;
                }
                Err(WriteError::Refused) => {}
                Err(error) => panic!("{}: {error}", self.name),
            }
        }
        self.last.insert(key, value);
    }
}

/// What was written, and what the maps have at the end.
#[derive(Clone)]
pub struct MapHistory {
    /// The last value of each key that one program changes, by bucket.
    last: BTreeMap<(String, Vec<u8>), Option<Vec<u8>>>,
    /// The values that were written to the other keys.
    values: BTreeSet<Vec<u8>>,
    maps: BTreeMap<&'static str, Entries>,
}

/// The name of a map without its host.
fn bucket(map: &str) -> &str {
    map.split('-').next().unwrap_or(map)
}

impl MapHistory {
    pub fn new(writers: Vec<Writer>) -> Self {
        let mut history = Self {
            last: BTreeMap::new(),
            values: BTreeSet::new(),
            maps: BTreeMap::new(),
        };
        for writer in writers {
            match writer.is_alone {
                true => history.last.extend(
                    writer
                        .last
                        .into_iter()
                        .map(|(key, value)| ((bucket(writer.name).to_owned(), key), value)),
                ),
                false => history.values.extend(writer.values),
            }
        }
        history.dump();
        history
    }

    fn dump(&mut self) {
        for name in ["table-a", "table-b", "shared-a", "shared-b"] {
            let map = Map::named(name).open_reader().unwrap();
            let entries = map.entries().map(Result::unwrap);
            let entries = entries.map(|(key, entry)| (key, entry.value)).collect();
            self.maps.insert(name, entries);
        }
    }

    /// Whether the bridges have nothing more to do.
    pub fn is_settled(&mut self) -> bool {
        self.dump();
        self.check().is_empty()
    }

    pub fn check(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (name, entries) in &self.maps {
            for ((_, key), value) in self.last.iter().filter(|((of, _), _)| of == bucket(name)) {
                let has = entries.get(key);
                if has != value.as_ref() {
                    found.push(format!(
                        "{name}: {} is {}, where {} was acknowledged last",
                        key.escape_ascii(),
                        text(has),
                        text(value.as_ref())
                    ));
                }
            }
            for (key, value) in entries.iter().filter(|(key, _)| key[0] == b'c') {
                if !self.values.contains(value) {
                    let (key, value) = (key.escape_ascii(), text(Some(value)));
                    found.push(format!(
                        "{name}: {key} is {value}, which nobody has written"
                    ));
                }
            }
        }
        for bucket in BUCKETS {
            let [one, other] = ["a", "b"].map(|host| &self.maps[&*format!("{bucket}-{host}")]);
            if one != other {
                let differ = one
                    .iter()
                    .filter(|(key, value)| other.get(*key) != Some(value));
                let differ: Vec<String> = differ
                    .map(|(key, _)| key.escape_ascii().to_string())
                    .collect();
                found.push(format!(
                    "{bucket}: hosts A and B differ, {} and {} entries: {differ:?}",
                    one.len(),
                    other.len()
                ));
            }
        }
        found
    }

    /// Returns the damages that the check does not find.
    pub fn unnoticed_damages(&self) -> Vec<String> {
        type Damage = fn(&mut Entries);
        let damages: [(&str, &[&str], Damage); 4] = [
            ("an entry is lost", &["table-a", "table-b"], |map| {
                map.pop_first();
            }),
            ("an entry comes back", &["shared-a", "shared-b"], |map| {
                map.insert(b"a-deleted".to_vec(), b"0".to_vec());
            }),
            ("one host has an older value", &["shared-b"], |map| {
                map.first_entry().unwrap().insert(b"old".to_vec());
            }),
            (
                "a value was never written",
                &["shared-a", "shared-b"],
                |map| {
                    map.insert(b"c0".to_vec(), b"0".to_vec());
                },
            ),
        ];
        let mut found = Vec::new();
        for (name, maps, damage) in damages {
            let mut damaged = self.clone();
            let deleted = ("shared".to_owned(), b"a-deleted".to_vec());
            damaged.last.insert(deleted, None);
            maps.iter()
                .for_each(|map| damage(damaged.maps.get_mut(map).unwrap()));
            match damaged.check().first() {
                Some(violation) => println!("checked: {name}: {violation}"),
                None => found.push(format!("the checker does not find that {name}")),
            }
        }
        found
    }

    pub fn summarize(&self, logs: &Path) {
        let entries: usize = self.maps.values().map(BTreeMap::len).sum();
        println!(
            "maps: {} keys with one writer, {} values of others; {entries} entries at the end",
            self.last.len(),
            self.values.len()
        );
        fs::write(logs.join("maps.txt"), format!("{:#?}\n", self.maps)).unwrap();
    }
}

fn text(value: Option<&Vec<u8>>) -> String {
    value.map_or_else(
        || "absent".to_owned(),
        |value| value.escape_ascii().to_string(),
    )
}
