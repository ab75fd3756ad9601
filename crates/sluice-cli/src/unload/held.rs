// SPDX-License-Identifier: MIT OR Apache-2.0
//! What keeps the module loaded.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process;

use anyhow::{Context, Result};
use sluice::{Channel, ChannelInfo, Kind, Map, Name, Scope};

use crate::holders::{self, Holder};
use crate::table::{Column, Columns, Row, Value};
use crate::{cgroup, output};

const DEPENDENT_MODULES: &str = "/sys/module/sluice/holders";
/// The kind of the file by which sluiced stores durable maps.
const KEEPER: &str = "keeper";

/// All that keeps the module loaded, as far as it can be seen.
#[derive(Default)]
pub struct Held {
    pub processes: Vec<Holder>,
    pub channels: Vec<Found>,
    pub modules: Vec<String>,
    /// The directories of the scopes, by their inodes.
    scopes: HashMap<u64, PathBuf>,
}

/// A channel that is there without a process that is shown: persistent, or open in a message between processes, in io_uring, or over
/// netlink.
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
        for directory in cgroup::directories()? {
            match held.find_channels(&directory) {
                // It was removed meanwhile.
                Err(_) if !directory.exists() => {}
                found => found?,
            }
        }
        Ok(held)
    }

    fn find_channels(&mut self, directory: &Path) -> Result<()> {
        let inode = fs::metadata(directory)?.ino();
        let scope = Scope::at(directory)?;
        self.scopes.insert(inode, directory.to_owned());
        for channel in sluice::list(&scope)? {
            let channel = channel?;
            // A feed exists as long as the module that publishes.
            let is_shown = channel.kind == Kind::Feed || self.is_open_in_a_process(inode, &channel);
            if channel.persistent || !is_shown {
                let found = Found {
                    scope: directory.to_owned(),
                    is_durable: is_durable(&scope, &channel),
                    is_persistent: channel.persistent,
                    kind: channel.kind,
                    name: channel.name,
                };
                self.channels.push(found);
            }
        }
        Ok(())
    }

    fn is_open_in_a_process(&self, inode: u64, channel: &ChannelInfo) -> bool {
        self.processes.iter().any(|holder| {
            holder.cgroup_id == Some(inode)
                && holder.name.as_deref() == Some(channel.name.as_bytes())
                && holder.kind == channel.kind.to_string()
        })
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

    /// Without what the options of the command end.
    pub fn without(mut self, detach: bool, remove_channels: bool) -> Self {
        let daemon = self.daemon();
        self.processes
            .retain(|holder| !(detach && daemon == Some(holder.pid)));
        self.channels.retain(|channel| {
            let ends =
                (detach && channel.is_durable) || (remove_channels && channel.is_removable());
            !ends
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
            kind: Some(holder.kind.clone()),
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
    /// A durable map is detached instead.
    fn is_removable(&self) -> bool {
        self.is_persistent && !self.is_durable
    }

    /// One that is gone meanwhile is as good as removed.
    pub fn remove(&self) -> Result<()> {
        if !self.is_removable() {
            return Ok(());
        }
        let channel = Channel::new(self.kind, self.name)?.in_scope(Scope::at(&self.scope)?);
        match channel.unlink() {
            Err(sluice::Error::NotFound { .. }) => Ok(()),
            removed => Ok(removed?),
        }
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

fn is_durable(scope: &Scope, channel: &ChannelInfo) -> bool {
    let info = || Map::named(channel.name).scope(scope.clone()).info();
    channel.kind == Kind::Map && info().is_ok_and(|info| info.durable.is_some())
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::table::table;

    fn process(pid: u32, command: &str, kind: &str, name: Option<&str>) -> Holder {
        Holder {
            pid,
            command: command.to_owned(),
            kind: kind.to_owned(),
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
    fn the_options_end_only_what_they_name() {
        let left = |detach, remove_channels| {
            let held = everything().without(detach, remove_channels);
            let names: Vec<_> = held
                .channels
                .iter()
                .map(|one| one.name.to_string())
                .collect();
            (held.processes.len(), names.join(" "))
        };
        assert_eq!(left(false, false), (4, "jobs config far".to_owned()));
        assert_eq!(left(true, false), (2, "config far".to_owned()));
        assert_eq!(left(false, true), (4, "jobs far".to_owned()));
        assert_eq!(left(true, true), (2, "far".to_owned()));
        assert!(!everything().without(true, true).is_empty());
    }
}
