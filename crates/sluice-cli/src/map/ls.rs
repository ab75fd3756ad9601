// SPDX-License-Identifier: MIT OR Apache-2.0
//! The maps of a scope, or the keys of a map.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use sluice::map::{Entry, EntryInfo};
use sluice::{Map, Name, escape};

use super::args::PrefixArgs;
use super::info;
use super::object::EntryObject;
use crate::args;
use crate::table::{Column, Columns, Row, Value, table};
use crate::{ls, output};

#[derive(Args)]
#[command(mut_arg("prefix", |prefix| prefix.requires("name")))]
#[command(mut_arg("all", |all| all.conflicts_with("name")))]
pub struct Arguments {
    /// The map whose keys to list [default: list the maps of the scope]
    #[arg(value_parser = args::name())]
    name: Option<Name>,

    #[command(flatten)]
    list: ls::Arguments,

    #[command(flatten)]
    keys: PrefixArgs,

    /// Print the values, too
    #[arg(long, requires = "name")]
    values: bool,
}

/// A line of the keys.
struct KeyRow {
    key: Vec<u8>,
    info: EntryInfo,
}

/// A line of the keys with their values.
struct EntryRow {
    key: Vec<u8>,
    entry: Entry,
}

/// sluice-map(1) describes the columns.
impl Columns for KeyRow {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("VERSION", "version", |row| Value::Number(row.info.version)),
        Column::new("TTL", "ttl", |row| time_to_live(row.info.time_to_live)),
        Column::new("LENGTH", "length", |row| Value::Number(row.info.len as u64)),
        Column::new("KEY", "key", |row| Value::Text(escape(&row.key))),
    ];
}

impl Columns for EntryRow {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("VERSION", "version", |row| Value::Number(row.entry.version)),
        Column::new("TTL", "ttl", |row| time_to_live(row.entry.time_to_live)),
        Column::new("LENGTH", "length", |row| {
            Value::Number(row.entry.value.len() as u64)
        }),
        Column::new("KEY", "key", |row| Value::Text(escape(&row.key))),
        Column::new("VALUE", "value", |row| {
            Value::Text(escape(&row.entry.value))
        }),
    ];
}

fn time_to_live(time: Option<Duration>) -> Value {
    Value::Text(match time {
        Some(time) => format!("{:.3}s", time.as_secs_f64()),
        None => "none".to_owned(),
    })
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let Some(name) = &arguments.name else {
        return info::list(&arguments.list);
    };
    let map = Map::named(name)
        .scope(arguments.list.scope()?)
        .open_reader()?;
    match arguments.values {
        true => print_entries(&map, arguments),
        false => print_keys(&map, arguments),
    }
}

fn print_keys(map: &Map, arguments: &Arguments) -> Result<()> {
    let mut all = map.keys().collect::<Result<Vec<_>, _>>()?;
    all.retain(|(key, _)| arguments.keys.matches(key));
    all.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    if arguments.list.json() {
        let objects = all
            .iter()
            .map(|(key, info)| EntryObject::without_value(key, info));
        return output::print_json(&objects.collect::<Vec<_>>());
    }
    let rows = all
        .into_iter()
        .map(|(key, info)| Row::from(&KeyRow { key, info }));
    output::print(&table(&rows.collect::<Vec<_>>(), true))
}

fn print_entries(map: &Map, arguments: &Arguments) -> Result<()> {
    let mut all = map.entries().collect::<Result<Vec<_>, _>>()?;
    all.retain(|(key, _)| arguments.keys.matches(key));
    all.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    if arguments.list.json() {
        let objects = all.iter().map(|(key, entry)| EntryObject::new(key, entry));
        return output::print_json(&objects.collect::<Vec<_>>());
    }
    let rows = all
        .into_iter()
        .map(|(key, entry)| Row::from(&EntryRow { key, entry }));
    output::print(&table(&rows.collect::<Vec<_>>(), true))
}
