// SPDX-License-Identifier: MIT OR Apache-2.0
//! The columns that channels of all kinds have.

use sluice::ChannelInfo;

use crate::table::{Column, Columns, Row, Value};

pub type ChannelRow = Row<ChannelInfo>;

/// sluice(1) describes them, for the table and for JSON, and `tests/src/suite/cli.rs` compares them.
impl Columns for ChannelInfo {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("KIND", "kind", |channel| {
            Value::Text(channel.kind.to_string())
        }),
        Column::new("MODE", "mode", |channel| {
            Value::Text(format!("{:04o}", channel.mode))
        }),
        Column::new("USER", "uid", |channel| Value::User(channel.uid)),
        Column::new("GROUP", "gid", |channel| Value::Group(channel.gid)),
        Column::new("READERS", "readers", |channel| {
            Value::Number(channel.readers.into())
        }),
        Column::new("WRITERS", "writers", |channel| {
            Value::Number(channel.writers.into())
        }),
        Column::new("BYTES", "bytes", |channel| Value::Number(channel.bytes)),
        Column::new("CAPACITY", "capacity", |channel| {
            Value::Number(channel.capacity)
        }),
        Column::new("PERSISTENT", "persistent", |channel| {
            Value::Flag(channel.persistent)
        }),
        Column::new("NAME", "name", |channel| {
            Value::Text(channel.name.to_string())
        }),
    ];
}
