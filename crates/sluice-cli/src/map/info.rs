// SPDX-License-Identifier: MIT OR Apache-2.0
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;
use sluice::map::{DurableInfo, MapInfo, Options};
use sluice::{ChannelInfo, Kind, Map, StoreError};

use crate::args::InfoArgs;
use crate::channel_row::ChannelRow;
use crate::table::{Column, Columns, Row, Value, table};
use crate::{ls, output};

/// sluice-map(1) describes them, for the table and for JSON, and `tests/src/suite/map_cli.rs` compares them.
impl Columns for MapInfo {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("ENTRIES", "entries", |map| Value::Number(map.entries)),
        Column::new("LIMIT", "entries_max", |map| Value::Limit(map.entries_max)),
        Column::new("SEQUENCE", "sequence", |map| Value::Number(map.sequence)),
        Column::new("EXPIRED", "expired", |map| Value::Number(map.expired)),
        Column::new("WATCHERS", "watchers", |map| {
            Value::Number(map.watchers.into())
        }),
        Column::new("EVENTS", "events", |map| Value::Number(map.events.into())),
        Column::new("MISSED", "missed", |map| Value::Number(map.missed)),
        Column::new("TABLE", "table", |map| {
            Value::Limit(map.table.map(|table| table.bytes))
        }),
        Column::new("CELL", "cell", |map| {
            Value::Limit(map.table.map(|table| table.cell.into()))
        }),
    ];
}

/// As above.
impl Columns for DurableInfo {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("SYNC", "sync", |map| Value::Text(sync(map).to_owned())),
        Column::new("INTERVAL", "interval_ms", |map| {
            Value::Limit(map.interval.map(milliseconds))
        }),
        Column::new("DEADLINE", "deadline_ms", |map| {
            Value::Number(milliseconds(map.deadline))
        }),
        Column::new("REFUSE", "refuse", |map| Value::Flag(map.refuse)),
        Column::new("STORED", "stored", |map| Value::Number(map.stored)),
        Column::new("PENDING", "pending", |map| Value::Number(map.pending)),
        Column::new("ERROR", "error", |map| {
            Value::Note(map.store_error.map(error_name))
        }),
    ];
}

/// When a change returns.
fn sync(map: &DurableInfo) -> &'static str {
    match map.interval {
        Some(_) => "interval",
        None => "always",
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// One word.
fn error_name(error: StoreError) -> String {
    match error {
        StoreError::Full => "ENOSPC".to_owned(),
        StoreError::Failed => "EIO".to_owned(),
        StoreError::ReadOnly => "EROFS".to_owned(),
        other => format!("errno-{}", other.errno()),
    }
}

/// A line of `map ls`.
struct ListedMap {
    channel: ChannelInfo,
    info: MapInfo,
}

impl Columns for ListedMap {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("USER", "uid", |map| Value::User(map.channel.uid)),
        Column::new("ENTRIES", "entries", |map| Value::Number(map.info.entries)),
        Column::new("BYTES", "bytes", |map| Value::Number(map.info.bytes)),
        Column::new("CAPACITY", "capacity", |map| {
            Value::Number(map.info.capacity)
        }),
        Column::new("SEQUENCE", "sequence", |map| {
            Value::Number(map.info.sequence)
        }),
        Column::new("WATCHERS", "watchers", |map| {
            Value::Number(map.info.watchers.into())
        }),
        Column::new("DURABLE", "durable", |map| {
            Value::Text(map.info.durable.as_ref().map_or("no", sync).to_owned())
        }),
        Column::new("NAME", "name", |map| {
            Value::Text(map.channel.name.to_string())
        }),
    ];
}

/// What all channels have, and what only maps have.
#[derive(Serialize)]
pub struct MapObject {
    #[serde(flatten)]
    channel: ChannelRow,
    #[serde(flatten)]
    map: Row<MapInfo>,
    /// Null: the map is volatile.
    durable: Option<Row<DurableInfo>>,
}

impl MapObject {
    pub fn query(map: &Options) -> sluice::Result<Self> {
        let info = map.info()?;
        Ok(Self {
            channel: ChannelRow::from(&map.channel()?.info()?),
            map: Row::from(&info),
            durable: info.durable.as_ref().map(Row::from),
        })
    }
}

pub fn run(arguments: &InfoArgs) -> Result<()> {
    let object = MapObject::query(&arguments.channel.options(Map::named)?)?;
    match arguments.json {
        true => output::print_json(&object),
        false => {
            let channel = table(std::slice::from_ref(&object.channel), arguments.numeric);
            let map = table(std::slice::from_ref(&object.map), arguments.numeric);
            let durable = match &object.durable {
                Some(row) => format!("\n{}", table(std::slice::from_ref(row), true)),
                None => String::new(),
            };
            output::print(&format!("{channel}\n{map}{durable}"))
        }
    }
}

pub fn list(arguments: &ls::Arguments) -> Result<()> {
    ls::run_kind_with(arguments, Kind::Map, |scope, channel| {
        let map = Map::named(channel.name).scope(scope.clone());
        let (info, object) = (map.info()?, MapObject::query(&map)?);
        Ok((Row::from(&ListedMap { channel, info }), object))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_store_is_one_word() {
        for (error, word) in [
            (StoreError::Full, "ENOSPC"),
            (StoreError::Failed, "EIO"),
            (StoreError::ReadOnly, "EROFS"),
            (StoreError::Other(6), "errno-6"),
        ] {
            assert_eq!(error_name(error), word);
        }
    }
}
