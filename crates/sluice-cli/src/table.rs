// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables and JSON objects, which have the same columns.

use std::collections::HashMap;
use std::iter;
use std::marker::PhantomData;

use comfy_table::presets::NOTHING;
use nix::unistd::{Gid, Group, Uid, User};
use serde::{Serialize, Serializer};

/// What is shown as a row of a table, and as an object in JSON.
pub trait Columns: Sized + 'static {
    const COLUMNS: &'static [Column<Self>];
}

pub struct Column<T> {
    heading: &'static str,
    json_key: &'static str,
    value: fn(&T) -> Value,
}

impl<T> Column<T> {
    pub const fn new(
        heading: &'static str,
        json_key: &'static str,
        value: fn(&T) -> Value,
    ) -> Self {
        Self {
            heading,
            json_key,
            value,
        }
    }
}

#[derive(Serialize)]
#[serde(untagged)]
pub enum Value {
    Text(String),
    Number(u64),
    Flag(bool),
    User(u32),
    Group(u32),
    /// A memory node, or any.
    Node(Option<u32>),
    /// A limit, or none.
    Limit(Option<u64>),
    /// A text, or none.
    Note(Option<String>),
    /// A value that does not apply to each row.
    Optional(Option<Box<Value>>),
}

/// The values of one row, in the order of the columns.
pub struct Row<T> {
    values: Vec<Value>,
    columns: PhantomData<T>,
}

impl<T: Columns> From<&T> for Row<T> {
    fn from(item: &T) -> Self {
        let values = T::COLUMNS.iter().map(|column| (column.value)(item));
        Self {
            values: values.collect(),
            columns: PhantomData,
        }
    }
}

/// sluice(1) describes the objects.
impl<T: Columns> Serialize for Row<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let keys = T::COLUMNS.iter().map(|column| column.json_key);
        serializer.collect_map(keys.zip(&self.values))
    }
}

/// Formats a table with a heading line. `numeric` prints users and groups as numbers.
pub fn table<'a, T: Columns>(rows: impl IntoIterator<Item = &'a Row<T>>, numeric: bool) -> String {
    let mut owners = OwnerNames::new(numeric);
    let headings = T::COLUMNS.iter().map(|column| column.heading.to_owned());
    let rows = rows.into_iter().map(|row| cells(row, &mut owners));
    let mut padded = comfy_table::Table::new();
    padded.load_preset(NOTHING);
    let mut last_cells = Vec::new();
    for mut cells in iter::once(headings.collect()).chain(rows) {
        last_cells.extend(cells.pop());
        padded.add_row(cells);
    }
    for column in padded.column_iter_mut() {
        column.set_padding((0, 2));
    }
    // The last column stays outside: the value of a map has up to 1 MiB, a column of comfy-table at most 65,535 characters. No cell
    // contains a newline, so each row has one line.
    let lines = padded.lines().zip(last_cells);
    lines.map(|(line, last)| line + &last + "\n").collect()
}

fn cells<T>(row: &Row<T>, owners: &mut OwnerNames) -> Vec<String> {
    row.values.iter().map(|value| cell(value, owners)).collect()
}

fn cell(value: &Value, owners: &mut OwnerNames) -> String {
    match value {
        Value::Text(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Flag(flag) => if *flag { "yes" } else { "no" }.to_owned(),
        Value::User(uid) => owners.user(*uid),
        Value::Group(gid) => owners.group(*gid),
        Value::Node(node) => node.map_or("any".to_owned(), |node| node.to_string()),
        Value::Note(note) => note.as_deref().unwrap_or("none").to_owned(),
        Value::Limit(limit) => limit.map_or("none".to_owned(), |limit| limit.to_string()),
        Value::Optional(Some(value)) => cell(value, owners),
        Value::Optional(None) => "-".to_owned(),
    }
}

/// Maps user and group IDs to names, or to numbers where no name is known. Caches the names, since each lookup reads a file or asks
/// a directory server.
pub struct OwnerNames {
    numeric: bool,
    users: HashMap<u32, String>,
    groups: HashMap<u32, String>,
}

impl OwnerNames {
    pub fn new(numeric: bool) -> Self {
        Self {
            numeric,
            users: HashMap::new(),
            groups: HashMap::new(),
        }
    }

    pub fn user(&mut self, uid: u32) -> String {
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

    struct File {
        name: &'static str,
        uid: u32,
        bytes: u64,
        node: Option<u32>,
    }

    impl Columns for File {
        const COLUMNS: &'static [Column<Self>] = &[
            Column::new("USER", "uid", |file| Value::User(file.uid)),
            Column::new("BYTES", "bytes", |file| Value::Number(file.bytes)),
            Column::new("LARGE", "large", |file| Value::Flag(file.bytes > 10)),
            Column::new("NODE", "node", |file| Value::Node(file.node)),
            Column::new("NAME", "name", |file| Value::Text(file.name.to_owned())),
        ];
    }

    fn rows() -> [Row<File>; 2] {
        let large = File {
            name: "frames",
            uid: 100_000,
            bytes: 65536,
            node: None,
        };
        let small = File {
            name: "a",
            uid: 0,
            bytes: 7,
            node: Some(1),
        };
        [Row::from(&large), Row::from(&small)]
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let expected = "\
USER    BYTES  LARGE  NODE  NAME
100000  65536  yes    any   frames
0       7      no     1     a
";
        assert_eq!(table(&rows(), true), expected);
    }

    #[test]
    fn a_table_without_rows_has_headings() {
        assert_eq!(
            table::<File>(&[], false),
            "USER  BYTES  LARGE  NODE  NAME\n"
        );
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
    fn json_has_numbers_for_users_and_null_for_any_node() {
        let expected = json!([
            { "uid": 100_000, "bytes": 65536, "large": true, "node": null, "name": "frames" },
            { "uid": 0, "bytes": 7, "large": false, "node": 1, "name": "a" },
        ]);
        assert_eq!(serde_json::to_value(rows()).unwrap(), expected);
    }
}
