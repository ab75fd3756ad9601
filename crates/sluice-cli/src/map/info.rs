// SPDX-License-Identifier: MIT OR Apache-2.0
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;
use sluice::map::{DurableInfo, MapInfo, StoreError};
use sluice::{Channel, Error, Kind, Name, Scope};

use crate::args::InfoArgs;
use crate::channel_row::ChannelRow;
use crate::output;
use crate::table::{Column, Columns, Row, Value, table};

/// sluice-map(1) describes them, for the table and for JSON, and `tests/src/suite/map_cli.rs` compares them.
impl Columns for MapInfo {
    const COLUMNS: &'static [Column<Self>] = &[
        Column {
            heading: "ENTRIES",
            json_key: "entries",
            value: |map| Value::Number(map.entries),
        },
        Column {
            heading: "LIMIT",
            json_key: "entries_max",
            value: |map| Value::Limit(map.entries_max),
        },
        Column {
            heading: "SEQUENCE",
            json_key: "sequence",
            value: |map| Value::Number(map.sequence),
        },
        Column {
            heading: "EXPIRED",
            json_key: "expired",
            value: |map| Value::Number(map.expired),
        },
        Column {
            heading: "WATCHERS",
            json_key: "watchers",
            value: |map| Value::Number(map.watchers.into()),
        },
        Column {
            heading: "EVENTS",
            json_key: "events",
            value: |map| Value::Number(map.events.into()),
        },
        Column {
            heading: "MISSED",
            json_key: "missed",
            value: |map| Value::Number(map.missed),
        },
    ];
}

/// As above.
impl Columns for DurableInfo {
    const COLUMNS: &'static [Column<Self>] = &[
        Column {
            heading: "SYNC",
            json_key: "sync",
            value: |map| Value::Text(sync(map).to_owned()),
        },
        Column {
            heading: "INTERVAL",
            json_key: "interval_ms",
            value: |map| Value::Limit(map.interval.map(milliseconds)),
        },
        Column {
            heading: "DEADLINE",
            json_key: "deadline_ms",
            value: |map| Value::Number(milliseconds(map.deadline)),
        },
        Column {
            heading: "REFUSE",
            json_key: "refuse",
            value: |map| Value::Flag(map.refuse),
        },
        Column {
            heading: "STORED",
            json_key: "stored",
            value: |map| Value::Number(map.stored),
        },
        Column {
            heading: "PENDING",
            json_key: "pending",
            value: |map| Value::Number(map.pending),
        },
        Column {
            heading: "ERROR",
            json_key: "error",
            value: |map| Value::Note(map.store_error.map(error_name)),
        },
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
    name: Name,
    info: MapInfo,
}

impl Columns for ListedMap {
    const COLUMNS: &'static [Column<Self>] = &[
        Column {
            heading: "ENTRIES",
            json_key: "entries",
            value: |map| Value::Number(map.info.entries),
        },
        Column {
            heading: "BYTES",
            json_key: "bytes",
            value: |map| Value::Number(map.info.bytes),
        },
        Column {
            heading: "CAPACITY",
            json_key: "capacity",
            value: |map| Value::Number(map.info.capacity),
        },
        Column {
            heading: "SEQUENCE",
            json_key: "sequence",
            value: |map| Value::Number(map.info.sequence),
        },
        Column {
            heading: "WATCHERS",
            json_key: "watchers",
            value: |map| Value::Number(map.info.watchers.into()),
        },
        Column {
            heading: "DURABLE",
            json_key: "durable",
            value: |map| Value::Text(map.info.durable.as_ref().map_or("no", sync).to_owned()),
        },
        Column {
            heading: "NAME",
            json_key: "name",
            value: |map| Value::Text(map.name.to_string()),
        },
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
    pub fn query(channel: &Channel) -> sluice::Result<Self> {
        let map = channel.map_info()?;
        Ok(Self {
            channel: ChannelRow::from(&channel.info()?),
            map: Row::from(&map),
            durable: map.durable.as_ref().map(Row::from),
        })
    }
}

pub fn run(arguments: &InfoArgs) -> Result<()> {
    let object = MapObject::query(&arguments.channel.map()?)?;
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

/// Lists the maps of this scope.
pub fn list(scope: &Scope, json: bool) -> Result<()> {
    let (mut rows, mut objects) = (Vec::new(), Vec::new());
    for listed in sluice::list(scope)? {
        let name = match listed? {
            listed if listed.kind == Kind::Map => listed.name,
            _ => continue,
        };
        let channel = Channel::map(name.as_bytes())?.in_scope(scope.clone());
        match (channel.map_info(), MapObject::query(&channel)) {
            // Removed since.
            (Err(Error::NotFound { .. }), _) | (_, Err(Error::NotFound { .. })) => {}
            (info, object) => {
                let info = info?;
                rows.push(Row::from(&ListedMap { name, info }));
                objects.push(object?);
            }
        }
    }
    match json {
        true => output::print_json(&objects),
        false => output::print(&table(&rows, true)),
    }
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
