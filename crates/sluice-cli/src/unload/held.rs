// SPDX-License-Identifier: MIT OR Apache-2.0
//! What keeps the module loaded.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process;

use anyhow::{Context, Result};
use sluice::{Channel, ChannelInfo, Error, Kind, Map, Name, Scope};

use super::Step;
use crate::holders::{self, Holder, KEEPER};
use crate::table::{Column, Columns, Row, Value};
use crate::{cgroup, output};

const DEPENDENT_MODULES: &str = "/sys/module/sluice/holders";

/// All that keeps the module loaded, as far as it can be seen.
#[derive(Clone, Default)]
pub struct Held {
    pub processes: Vec<Holder>,
    pub channels: Vec<Found>,
    pub modules: Vec<String>,
    /// The directories of the scopes, by their inodes.
    scopes: HashMap<u64, PathBuf>,
}

/// A channel that is there without a process that is shown: persistent, or open in a message between processes, in io_uring, or over
/// netlink.
#[derive(Clone)]
pub struct Found {
    pub scope: PathBuf,
    pub kind: Kind,
    pub name: Name,
    pub is_persistent: bool,
    pub is_durable: bool,
}

/// A line of the table.
pub struct Line {
    what: &'static str,
    pid: Option<u32>,
    command: Option<String>,
    kind: Option<String>,
    name: Option<String>,
    scope: Option<String>,
}

/// sluice(1) describes them.
impl Columns for Line {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("HELD BY", "held_by", |line| {
            Value::Text(line.what.to_owned())
        }),
        Column::new("PID", "pid", |line| {
            Value::Optional(line.pid.map(|pid| Box::new(Value::Number(pid.into()))))
        }),
        Column::new("COMMAND", "command", |line| optional(&line.command)),
        Column::new("KIND", "kind", |line| optional(&line.kind)),
        Column::new("NAME", "name", |line| optional(&line.name)),
        Column::new("SCOPE", "scope", |line| optional(&line.scope)),
    ];
}

fn optional(text: &Option<String>) -> Value {
    Value::Optional(text.clone().map(|text| Box::new(Value::Text(text))))
}

impl Held {
    pub fn find() -> Result<Self> {
        let mut held = Self {
            processes: holders::all().context("cannot read /proc; mount it")?,
            modules: modules(),
            ..Self::default()
        };
        held.processes.retain(|holder| holder.pid != process::id());
        let open: HashSet<_> = held.processes.iter().filter_map(channel_of).collect();
        cgroup::each_scope(&cgroup::root()?, |directory, scope| {
            let inode = fs::metadata(directory)?.ino();
            held.scopes.insert(inode, directory.to_owned());
            for channel in sluice::list(scope)? {
                let channel = channel?;
                let kind = channel.kind.to_string();
                let is_open = open.contains(&(inode, kind.as_str(), channel.name.as_bytes()));
                held.channels
                    .extend(Found::of(channel, is_open, directory, scope)?);
            }
            Ok(())
        })?;
        Ok(held)
    }

    pub fn is_empty(&self) -> bool {
        self.processes.is_empty() && self.channels.is_empty() && self.modules.is_empty()
    }

    /// The process of sluiced, if it runs.
    pub fn daemon(&self) -> Option<u32> {
        let mut keepers = self.processes.iter();
        Some(keepers.find(|holder| holder.kind == KEEPER)?.pid)
    }

    pub fn has_durable_maps(&self) -> bool {
        self.channels.iter().any(|channel| channel.is_durable)
    }

    pub fn has_removable_channels(&self) -> bool {
        self.channels.iter().any(Found::is_removable)
    }

    /// Without what these steps end.
    pub fn without(mut self, steps: &[Step]) -> Self {
        let daemon = self.daemon().filter(|_| steps.contains(&Step::StopDaemon));
        self.processes.retain(|holder| daemon != Some(holder.pid));
        self.channels.retain(|channel| {
            let is_detached = channel.is_durable && steps.contains(&Step::Detach);
            let is_removed = channel.is_removable() && steps.contains(&Step::RemoveChannels);
            !is_detached && !is_removed
        });
        self
    }

    pub fn rows(&self) -> Vec<Row<Line>> {
        let processes = self.processes.iter().map(|holder| self.of_process(holder));
        let channels = self.channels.iter().map(Found::line);
        let modules = self.modules.iter().map(|name| Line {
            name: Some(name.clone()),
            ..Line::new("module")
        });
        let lines: Vec<_> = processes.chain(channels).chain(modules).collect();
        lines.iter().map(Row::from).collect()
    }

    fn of_process(&self, holder: &Holder) -> Line {
        let name = holder.name.as_deref().filter(|name| !name.is_empty());
        let scope = holder.cgroup_id.and_then(|id| self.scopes.get(&id));
        Line {
            pid: Some(holder.pid),
            command: Some(holder.command.clone()),
            kind: Some(holder.kind.to_owned()),
            name: name.map(sluice::escape),
            scope: scope.map(|path| shown(path)),
            ..Line::new(if holder.is_mapping {
                "mapping"
            } else {
                "process"
            })
        }
    }
}

impl Found {
    /// None if a process shows the channel, or if it is removed meanwhile.
    fn of(
        channel: ChannelInfo,
        is_open: bool,
        directory: &Path,
        scope: &Scope,
    ) -> sluice::Result<Option<Self>> {
        // A feed exists as long as the module that publishes.
        if !channel.persistent && (is_open || channel.kind == Kind::Feed) {
            return Ok(None);
        }
        let found = |is_durable| Self {
            scope: directory.to_owned(),
            kind: channel.kind,
            name: channel.name,
            is_persistent: channel.persistent,
            is_durable,
        };
        let is_durable = unless_gone(is_durable(channel.kind, channel.name, scope))?;
        Ok(is_durable.map(found))
    }

    /// A durable map is detached instead.
    fn is_removable(&self) -> bool {
        self.is_persistent && !self.is_durable
    }

    /// One that is gone meanwhile is as good as removed. It may be another channel of this name by now, and the removal of a durable map
    /// would delete it from the store.
    pub fn remove(&self) -> Result<()> {
        if !self.is_removable() {
            return Ok(());
        }
        let scope = Scope::at(&self.scope)?;
        if unless_gone(is_durable(self.kind, self.name, &scope))? == Some(false) {
            let channel = Channel::new(self.kind, self.name)?.in_scope(scope);
            unless_gone(channel.unlink())?;
        }
        Ok(())
    }

    fn line(&self) -> Line {
        let what = match (self.is_durable, self.is_persistent) {
            (true, _) => "durable map",
            (false, true) => "persistent channel",
            (false, false) => "open channel",
        };
        Line {
            kind: Some(self.kind.to_string()),
            name: Some(self.name.to_string()).filter(|name| !name.is_empty()),
            scope: Some(shown(&self.scope)),
            ..Line::new(what)
        }
    }
}

impl Line {
    fn new(what: &'static str) -> Self {
        Self {
            what,
            pid: None,
            command: None,
            kind: None,
            name: None,
            scope: None,
        }
    }
}

fn shown(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt as _;
    output::shown(path.as_os_str().as_bytes())
}

/// Modules that use functions of this one.
fn modules() -> Vec<String> {
    let entries = fs::read_dir(DEPENDENT_MODULES).into_iter().flatten();
    entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect()
}

/// The number of the cgroup, the kind and the name of the channel that a process has open.
fn channel_of(holder: &Holder) -> Option<(u64, &str, &[u8])> {
    Some((holder.cgroup_id?, holder.kind, holder.name.as_deref()?))
}

fn is_durable(kind: Kind, name: Name, scope: &Scope) -> sluice::Result<bool> {
    if kind != Kind::Map {
        return Ok(false);
    }
    let info = Map::named(name).scope(scope.clone()).info()?;
    Ok(info.durable.is_some())
}

/// None for a channel that does not exist.
fn unless_gone<T>(result: sluice::Result<T>) -> sluice::Result<Option<T>> {
    match result {
        Err(Error::NotFound { .. }) => Ok(None),
        result => result.map(Some),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::table::table;

    fn process(pid: u32, command: &str, kind: &'static str, name: Option<&str>) -> Holder {
        Holder {
            pid,
            command: command.to_owned(),
            kind,
            name: name.map(|name| name.as_bytes().to_vec()),
            cgroup_id: name.map(|_| 7),
            access: String::new(),
            is_mapping: name.is_none() && kind == "ring",
        }
    }

    fn channel(name: &str, is_persistent: bool, is_durable: bool) -> Found {
        Found {
            scope: "/sys/fs/cgroup/b".into(),
            kind: Kind::Map,
            name: Name::new(name).unwrap(),
            is_persistent,
            is_durable,
        }
    }

    pub fn everything() -> Held {
        Held {
            processes: vec![
                process(812, "cat", "pipe", Some("")),
                process(813, "reader", "ring", None),
                process(90, "sluiced", "ctl", None),
                process(90, "sluiced", KEEPER, None),
            ],
            channels: vec![
                channel("jobs", true, true),
                channel("config", true, false),
                channel("far", false, false),
            ],
            modules: vec!["sluice_frames".to_owned()],
            scopes: HashMap::from([(7, "/sys/fs/cgroup/a".into())]),
        }
    }

    #[test]
    fn each_holder_is_a_line() {
        let expected = "\
HELD BY             PID  COMMAND  KIND    NAME           SCOPE
process             812  cat      pipe    -              /sys/fs/cgroup/a
mapping             813  reader   ring    -              -
process             90   sluiced  ctl     -              -
process             90   sluiced  keeper  -              -
durable map         -    -        map     jobs           /sys/fs/cgroup/b
persistent channel  -    -        map     config         /sys/fs/cgroup/b
open channel        -    -        map     far            /sys/fs/cgroup/b
module              -    -        -       sluice_frames  -
";
        assert_eq!(table(&everything().rows(), true), expected);
        let json = serde_json::to_value(everything().rows()).unwrap();
        assert_eq!(json[0]["pid"], 812);
        assert!(json[7]["pid"].is_null() && json[7]["scope"].is_null());
    }

    #[test]
    fn a_step_ends_only_what_it_names() {
        let left = |steps: &[Step]| {
            let held = everything().without(steps);
            let names: Vec<_> = held
                .channels
                .iter()
                .map(|one| one.name.to_string())
                .collect();
            (held.processes.len(), names.join(" "))
        };
        assert_eq!(left(&[]), (4, "jobs config far".to_owned()));
        assert_eq!(left(&[Step::Detach]), (4, "config far".to_owned()));
        assert_eq!(left(&[Step::StopDaemon]), (2, "jobs config far".to_owned()));
        assert_eq!(left(&[Step::RemoveChannels]), (4, "jobs far".to_owned()));
        assert_eq!(left(&Step::ALL), (2, "far".to_owned()));
        assert!(!everything().without(&Step::ALL).is_empty());
    }

    #[test]
    fn only_a_channel_that_is_gone_is_skipped() {
        let gone = Error::NotFound {
            kind: Kind::Map,
            name: "jobs".to_owned(),
            scope: String::new(),
        };
        assert!(matches!(unless_gone::<bool>(Err(gone)), Ok(None)));
        assert!(unless_gone::<bool>(Err(Error::NoCgroup2)).is_err());
        assert!(matches!(unless_gone(Ok(false)), Ok(Some(false))));
    }

    #[test]
    fn a_channel_is_found_if_no_process_shows_it() {
        let channel = |persistent: bool, kind| {
            let mut info = sluice_abi::ChannelInfo::EMPTY;
            (info.kind, info.flags) = (
                kind,
                if persistent {
                    sluice_abi::CHANNEL_PERSISTENT
                } else {
                    0
                },
            );
            ChannelInfo::from(info)
        };
        let is_found = |channel, is_open| {
            Found::of(channel, is_open, Path::new("/"), &Scope::root())
                .unwrap()
                .is_some()
        };
        let (pipe, feed) = (sluice_abi::KIND_PIPE, sluice_abi::KIND_FEED);
        assert!(is_found(channel(true, pipe), true));
        assert!(is_found(channel(false, pipe), false));
        assert!(!is_found(channel(false, pipe), true));
        assert!(!is_found(channel(false, feed), false));
    }
}
