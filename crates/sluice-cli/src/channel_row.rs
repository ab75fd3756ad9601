// SPDX-License-Identifier: MIT OR Apache-2.0
//! Channels as table rows and as JSON objects, which have the same columns.

use std::collections::HashMap;

use nix::unistd::{Gid, Group, Uid, User};
use serde::{Serialize, Serializer};
use sluice::ChannelInfo;

struct Column {
    heading: &'static str,
    json_key: &'static str,
    value: fn(&ChannelInfo) -> Value,
}

/// sluice(1) describes them, for the table and for JSON, and `tests/src/suite/cli.rs` compares them.
const COLUMNS: [Column; 10] = [
    Column {
        heading: "KIND",
        json_key: "kind",
        value: |channel| Value::Text(channel.kind.to_string()),
    },
    Column {
        heading: "MODE",
        json_key: "mode",
        value: |channel| Value::Text(format!("{:04o}", channel.mode)),
    },
    Column {
        heading: "USER",
        json_key: "uid",
        value: |channel| Value::User(channel.uid),
    },
    Column {
        heading: "GROUP",
        json_key: "gid",
        value: |channel| Value::Group(channel.gid),
    },
    Column {
        heading: "READERS",
        json_key: "readers",
        value: |channel| Value::Number(channel.readers.into()),
    },
    Column {
        heading: "WRITERS",
        json_key: "writers",
        value: |channel| Value::Number(channel.writers.into()),
    },
    Column {
        heading: "BYTES",
        json_key: "bytes",
        value: |channel| Value::Number(channel.bytes),
    },
    Column {
        heading: "CAPACITY",
        json_key: "capacity",
        value: |channel| Value::Number(channel.capacity),
    },
    Column {
        heading: "PERSISTENT",
        json_key: "persistent",
        value: |channel| Value::Flag(channel.persistent),
    },
    Column {
        heading: "NAME",
        json_key: "name",
        value: |channel| Value::Text(channel.name.to_string()),
    },
];

#[derive(Serialize)]
#[serde(untagged)]
enum Value {
    Text(String),
    Number(u64),
    Flag(bool),
    User(u32),
    Group(u32),
}

/// The values of one channel, in the order of COLUMNS.
pub struct ChannelRow([Value; COLUMNS.len()]);

impl From<&ChannelInfo> for ChannelRow {
    fn from(channel: &ChannelInfo) -> Self {
        Self(COLUMNS.map(|column| (column.value)(channel)))
    }
}

/// sluice(1) describes the object.
impl Serialize for ChannelRow {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let keys = COLUMNS.iter().map(|column| column.json_key);
        serializer.collect_map(keys.zip(&self.0))
    }
}

/// Formats a table with a heading line. `numeric` prints users and groups as numbers.
pub fn table(channels: &[ChannelRow], numeric: bool) -> String {
    let mut owners = OwnerNames::new(numeric);
    let mut rows = vec![COLUMNS.map(|column| column.heading.to_owned())];
    rows.extend(channels.iter().map(|row| cells(row, &mut owners)));
    let widths = widths(&rows);
    let lines = rows.iter().map(|row| line(row, &widths));
    lines.collect()
}

type Cells = [String; COLUMNS.len()];

fn cells(row: &ChannelRow, owners: &mut OwnerNames) -> Cells {
    row.0.each_ref().map(|value| match value {
        Value::Text(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Flag(flag) => if *flag { "yes" } else { "no" }.to_owned(),
        Value::User(uid) => owners.user(*uid),
        Value::Group(gid) => owners.group(*gid),
    })
}

/// The last column needs no padding.
fn widths(rows: &[Cells]) -> Vec<usize> {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let padded = 0..COLUMNS.len() - 1;
    padded.map(|column| width(column).unwrap_or(0)).collect()
}

fn line(row: &Cells, widths: &[usize]) -> String {
    let mut line = String::new();
    for (cell, width) in row.iter().zip(widths) {
        line += &format!("{cell:width$}  ");
    }
    line + &row[COLUMNS.len() - 1] + "\n"
}

/// Maps user and group IDs to names, or to numbers where no name is known. Caches the names, since each lookup reads a file or asks
/// a directory server.
struct OwnerNames {
    numeric: bool,
    users: HashMap<u32, String>,
    groups: HashMap<u32, String>,
}

impl OwnerNames {
    fn new(numeric: bool) -> Self {
        Self {
            numeric,
            users: HashMap::new(),
            groups: HashMap::new(),
        }
    }

    fn user(&mut self, uid: u32) -> String {
        let lookup = || Some(User::from_uid(Uid::from_raw(uid)).ok()??.name);
        self.cached(uid, |names| &mut names.users, lookup)
    }

    fn group(&mut self, gid: u32) -> String {
        let lookup = || Some(Group::from_gid(Gid::from_raw(gid)).ok()??.name);
        self.cached(gid, |names| &mut names.groups, lookup)
    }

    fn cached(
        &mut self,
        id: u32,
        cache: impl FnOnce(&mut Self) -> &mut HashMap<u32, String>,
        lookup: impl FnOnce() -> Option<String>,
    ) -> String {
        if self.numeric {
            return id.to_string();
        }
        let name = || lookup().unwrap_or_else(|| id.to_string());
        cache(self).entry(id).or_insert_with(name).clone()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// No system has this user or group: an ID of all ones means "unchanged" to chown(2).
    const UNKNOWN: u32 = u32::MAX;

    fn row(uid: u32, gid: u32) -> ChannelRow {
        ChannelRow([
            Value::Text("pipe".to_owned()),
            Value::Text("0600".to_owned()),
            Value::User(uid),
            Value::Group(gid),
            Value::Number(0),
            Value::Number(1),
            Value::Number(17),
            Value::Number(65536),
            Value::Flag(true),
            Value::Text("frames".to_owned()),
        ])
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let expected = "\
KIND  MODE  USER    GROUP  READERS  WRITERS  BYTES  CAPACITY  PERSISTENT  NAME
pipe  0600  100000  5      0        1        17     65536     yes         frames
";
        assert_eq!(table(&[row(100_000, 5)], true), expected);
    }

    #[test]
    fn users_and_groups_are_shown_by_name_or_else_by_number() {
        let mut owners = OwnerNames::new(false);
        assert_eq!(owners.user(0), "root");
        assert_eq!(owners.group(0), "root");
        assert_eq!(owners.user(UNKNOWN), UNKNOWN.to_string());
        assert_eq!(owners.group(UNKNOWN), UNKNOWN.to_string());
        assert_eq!(OwnerNames::new(true).user(0), "0");
    }

    #[test]
    fn json_has_numbers_for_users_and_groups() {
        let object = serde_json::to_value(row(0, 5)).unwrap();
        let expected = json!({
            "kind": "pipe", "mode": "0600", "uid": 0, "gid": 5, "readers": 0, "writers": 1,
            "bytes": 17, "capacity": 65536, "persistent": true, "name": "frames",
        });
        assert_eq!(object, expected);
    }
}
