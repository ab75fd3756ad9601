// SPDX-License-Identifier: MIT OR Apache-2.0
//! Samples of the channels, and the rates between two of them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Result;
use serde::Serialize;
use sluice::{ChannelInfo, Kind, Name};

use crate::channels::{self, Counts, Found, Place, SelectionArgs};
use crate::holders::{self, Holder};
use crate::table::OwnerNames;

/// How long the list of processes is used while the numbers of endpoints stay the same.
const PROCESSES_AGE: Duration = Duration::from_secs(10);

/// Identifies a channel in several samples.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    pub kind: Kind,
    pub name: Name,
    pub cgroup_id: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Process {
    pub pid: u32,
    pub command: String,
    pub access: String,
}

/// A channel in a sample.
#[derive(Clone, Debug)]
pub struct Row {
    pub place: Arc<Place>,
    pub info: ChannelInfo,
    pub user: String,
    pub rates: Counts<f64>,
    pub processes: Vec<Process>,
}

/// sluice-top(1) describes it.
#[derive(Serialize)]
pub struct Object<'a> {
    time: f64,
    kind: String,
    name: String,
    scope: &'a str,
    cgroup: Option<u64>,
    uid: u32,
    readers: u32,
    writers: u32,
    messages: Option<u64>,
    messages_per_second: Option<f64>,
    total_bytes: Option<u64>,
    bytes_per_second: Option<f64>,
    bytes: u64,
    capacity: u64,
    use_percent: f64,
    lag: Option<u64>,
    lost: Option<u64>,
    lost_per_second: Option<f64>,
    waiting: u32,
    processes: &'a [Process],
}

impl Key {
    pub fn of(place: &Place, info: &ChannelInfo) -> Self {
        Self {
            kind: info.kind,
            name: info.name,
            cgroup_id: place.cgroup_id,
        }
    }
}

/// The rates per second. There are none if a count is less than before: the channel is another one, or the ring has a new session.
fn rates(now: &Counts<u64>, before: &Counts<u64>, seconds: f64) -> Counts<f64> {
    let change = |now: Option<u64>, before: Option<u64>| match (now, before) {
        (Some(now), Some(before)) => now.checked_sub(before).map(Some),
        _ => Some(None),
    };
    let rate = |change: Option<u64>| change.map(|change| rounded(change as f64 / seconds));
    let changes = || {
        Some(Counts {
            messages: rate(change(now.messages, before.messages)?),
            bytes: rate(change(now.bytes, before.bytes)?),
            lost: rate(change(now.lost, before.lost)?),
        })
    };
    changes().unwrap_or_default()
}

/// To tenths.
fn rounded(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

impl Row {
    pub fn key(&self) -> Key {
        Key::of(&self.place, &self.info)
    }

    pub fn use_percent(&self) -> f64 {
        match self.info.capacity {
            0 => 0.0,
            capacity => rounded(self.info.bytes as f64 * 100.0 / capacity as f64),
        }
    }

    pub fn object(&self, time: f64) -> Object<'_> {
        let counts = Counts::of(&self.info);
        Object {
            time,
            kind: self.info.kind.to_string(),
            name: self.info.name.to_string(),
            scope: &self.place.path,
            cgroup: self.place.cgroup_id,
            uid: self.info.uid,
            readers: self.info.readers,
            writers: self.info.writers,
            messages: counts.messages,
            messages_per_second: self.rates.messages,
            total_bytes: counts.bytes,
            bytes_per_second: self.rates.bytes,
            bytes: self.info.bytes,
            capacity: self.info.capacity,
            use_percent: self.use_percent(),
            lag: channels::lag(&self.info),
            lost: counts.lost,
            lost_per_second: self.rates.lost,
            waiting: self.info.waiting,
            processes: &self.processes,
        }
    }
}

/// Takes samples.
pub struct Sampler<'a> {
    selection: &'a SelectionArgs,
    previous: Option<(Instant, HashMap<Key, Counts<u64>>)>,
    processes: Processes,
    owners: OwnerNames,
}

impl<'a> Sampler<'a> {
    pub fn new(selection: &'a SelectionArgs) -> Self {
        Self {
            selection,
            previous: None,
            processes: Processes::default(),
            owners: OwnerNames::new(false),
        }
    }

    pub fn sample(&mut self) -> Result<Vec<Row>> {
        let found = self.selection.list()?;
        let now = Instant::now();
        let previous = self.previous.take().map(|(time, counts)| {
            let seconds = now.duration_since(time).as_secs_f64();
            (seconds, counts)
        });
        let counts = found.iter();
        let counts =
            counts.map(|found| (Key::of(&found.place, &found.info), Counts::of(&found.info)));
        self.previous = Some((now, counts.collect()));
        self.processes.update(&found, now);
        let row = |found| self.row(found, previous.as_ref());
        Ok(found.into_iter().map(row).collect())
    }

    fn row(&mut self, found: Found, previous: Option<&(f64, HashMap<Key, Counts<u64>>)>) -> Row {
        let Found { place, info } = found;
        let key = Key::of(&place, &info);
        let rates = previous.and_then(|(seconds, counts)| {
            let before = counts.get(&key)?;
            Some(rates(&Counts::of(&info), before, *seconds))
        });
        Row {
            user: self.owners.user(info.uid),
            rates: rates.unwrap_or_default(),
            processes: self.processes.of(&key),
            place,
            info,
        }
    }
}

/// The processes of each channel. They are looked for only when numbers of endpoints have changed, or after some time, since that reads the
/// files of all processes.
#[derive(Default)]
struct Processes {
    found: HashMap<Channel, Vec<Process>>,
    endpoints: Vec<(Key, u32, u32)>,
    time: Option<Instant>,
}

impl Processes {
    fn update(&mut self, channels: &[Found], now: Instant) {
        let endpoints = channels
            .iter()
            .map(|Found { place, info }| (Key::of(place, info), info.readers, info.writers));
        let endpoints: Vec<_> = endpoints.collect();
        let is_recent = |time: Instant| now.duration_since(time) < PROCESSES_AGE;
        if self.endpoints != endpoints || !self.time.is_some_and(is_recent) {
            // Without /proc none are shown.
            self.found = by_channel(holders::all().unwrap_or_default());
            (self.endpoints, self.time) = (endpoints, Some(now));
        }
    }

    fn of(&self, key: &Key) -> Vec<Process> {
        let name = key.name.as_bytes().to_vec();
        let found = self.found.get(&(key.kind.to_string(), name, key.cgroup_id));
        found.cloned().unwrap_or_default()
    }
}

/// The kind, the name and the number of the cgroup.
type Channel = (String, Vec<u8>, Option<u64>);

/// A process that has a channel open for reading and for writing counts once.
fn by_channel(holders: Vec<Holder>) -> HashMap<Channel, Vec<Process>> {
    let mut found: HashMap<_, BTreeMap<u32, Process>> = HashMap::new();
    for holder in holders {
        let Some(name) = holder.name else { continue };
        let processes = found
            .entry((holder.kind.to_owned(), name, holder.cgroup_id))
            .or_default();
        let process = processes.entry(holder.pid).or_insert(Process {
            pid: holder.pid,
            command: holder.command,
            access: holder.access.clone(),
        });
        if process.access != holder.access {
            process.access = "rw".to_owned();
        }
    }
    let listed =
        |(channel, processes): (_, BTreeMap<_, _>)| (channel, processes.into_values().collect());
    found.into_iter().map(listed).collect()
}

/// Seconds since 1970.
pub fn unix_time() -> f64 {
    let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    (time.unwrap_or_default().as_millis() as f64) / 1000.0
}

#[cfg(test)]
pub mod tests {
    use sluice_abi as abi;

    use super::*;

    /// A channel, of which the tests set more.
    pub fn info(kind: u32, name: impl AsRef<[u8]>) -> abi::ChannelInfo {
        let mut info = abi::ChannelInfo::EMPTY;
        info.kind = kind;
        info.name = abi::padded(name.as_ref());
        info.capacity = 65536;
        info
    }

    pub fn row(info: abi::ChannelInfo, scope: &str) -> Row {
        let place = Place {
            path: scope.to_owned(),
            cgroup_id: Some(7),
            directory: None,
        };
        Row {
            place: Arc::new(place),
            info: info.into(),
            user: "root".to_owned(),
            rates: Counts::default(),
            processes: Vec::new(),
        }
    }

    fn counts(info: abi::ChannelInfo) -> Counts<u64> {
        Counts::of(&info.into())
    }

    #[test]
    fn rates_are_differences_by_time() {
        let mut before = info(abi::KIND_BUS, "b");
        (before.messages, before.lost) = (100, 3);
        let mut now = before;
        (now.messages, now.lost) = (131, 3);
        let rates = super::rates(&counts(now), &counts(before), 2.0);
        assert_eq!(rates.messages, Some(15.5));
        assert_eq!(rates.lost, Some(0.0));
        assert_eq!(rates.bytes, None);
        let mut pipe = info(abi::KIND_PIPE, "p");
        let empty = counts(pipe);
        pipe.total_bytes = 1000;
        assert_eq!(super::rates(&counts(pipe), &empty, 0.5).bytes, Some(2000.0));
    }

    #[test]
    fn a_count_that_went_down_is_of_another_channel() {
        let mut before = info(abi::KIND_BUS, "b");
        (before.messages, before.lost) = (100, 3);
        let mut now = before;
        (now.messages, now.lost) = (200, 2);
        assert_eq!(
            super::rates(&counts(now), &counts(before), 1.0),
            Counts::default()
        );
    }

    #[test]
    fn a_process_is_listed_once_for_a_channel() {
        let holder = |pid, access: &str, name: Option<&[u8]>| Holder {
            pid,
            command: "reader".to_owned(),
            kind: "bus",
            name: name.map(<[u8]>::to_vec),
            cgroup_id: Some(7),
            access: access.to_owned(),
            is_mapping: name.is_none(),
        };
        let holders = [
            holder(9, "r", Some(b"a")),
            holder(9, "w", Some(b"a")),
            holder(8, "r", Some(b"a")),
            holder(7, "r", None),
        ];
        let found = by_channel(holders.into());
        let processes = &found[&("bus".to_owned(), b"a".to_vec(), Some(7))];
        let accesses: Vec<_> = processes
            .iter()
            .map(|process| (process.pid, process.access.as_str()))
            .collect();
        assert_eq!(accesses, [(8, "r"), (9, "rw")]);
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn an_object_has_null_for_what_its_kind_does_not_count() {
        let mut pipe = info(abi::KIND_PIPE, "p\n");
        (pipe.bytes, pipe.total_bytes) = (16384, 99);
        let row = row(pipe, "/a");
        let object = serde_json::to_value(row.object(1.5)).unwrap();
        assert_eq!(object["name"], r"p\n");
        assert_eq!(object["total_bytes"], 99);
        assert_eq!(object["use_percent"], 25.0);
        for member in ["messages", "lost", "lag", "bytes_per_second"] {
            assert!(object[member].is_null(), "{member}");
        }
    }
}
