// SPDX-License-Identifier: MIT OR Apache-2.0
//! The columns that channels of all kinds have.

use sluice::ChannelInfo;

use crate::table::{Column, Columns, Row, Value};

pub type ChannelRow = Row<ChannelInfo>;

/// sluice(1) describes them, for the table and for JSON, and `tests/src/suite/cli.rs` compares them.
impl Columns for ChannelInfo {
    const COLUMNS: &'static [Column<Self>] = &[
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
}
