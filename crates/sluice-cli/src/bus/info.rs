// SPDX-License-Identifier: MIT OR Apache-2.0
use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;
use sluice::bus::{BusInfo, Options, SubscriberInfo};
use sluice::{Channel, Error, Kind, Name};

use crate::args::{InfoArgs, ScopeArgs};
use crate::channel_row::ChannelRow;
use crate::output;
use crate::table::{Column, Columns, Row, Value, table};

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    info: InfoArgs,

    /// List its subscribers, too; needs the permission to send
    ///
    /// Of a unicast bus, only monitors are listed.
    #[arg(long)]
    subscribers: bool,
}

#[derive(Args)]
pub struct ListArguments {
    #[command(flatten)]
    scope: ScopeArgs,

    /// Print a JSON array instead of a table
    #[arg(long)]
    json: bool,
}

/// sluice-bus(1) describes them, for the table and for JSON, and `tests/src/suite/bus_cli.rs` compares them.
impl Columns for BusInfo {
    const COLUMNS: &'static [Column<Self>] = &[
        Column {
            heading: "DELIVERY",
            json_key: "delivery",
            value: |bus| Value::Text(bus.mode.to_string()),
        },
        Column {
            heading: "POLICIES",
            json_key: "policies",
            value: |bus| match bus.policies.is_empty() {
                true => Value::Text("none".to_owned()),
                false => Value::Text(bus.policies.to_string()),
            },
        },
        Column {
            heading: "MAPPABLE",
            json_key: "mappable",
            value: |bus| Value::Flag(bus.mappable),
        },
        Column {
            heading: "LARGEST",
            json_key: "message_max",
            value: |bus| Value::Number(bus.message_max),
        },
        Column {
            heading: "SENT",
            json_key: "sent",
            value: |bus| Value::Number(bus.sent),
        },
        Column {
            heading: "UNSUBSCRIBED",
            json_key: "unsubscribed",
            value: |bus| Value::Number(bus.unsubscribed),
        },
        Column {
            heading: "LAG",
            json_key: "lag",
            value: |bus| Value::Number(bus.lag),
        },
        Column {
            heading: "LOST",
            json_key: "lost",
            value: |bus| Value::Number(bus.lost),
        },
        Column {
            heading: "EVICTED",
            json_key: "evicted",
            value: |bus| Value::Number(bus.evicted),
        },
    ];
}

impl Columns for SubscriberInfo {
    const COLUMNS: &'static [Column<Self>] = &[
        Column {
            heading: "ID",
            json_key: "id",
            value: |one| Value::Number(one.id),
        },
        Column {
            heading: "PID",
            json_key: "pid",
            value: |one| Value::Number(one.pid.unwrap_or_default().into()),
        },
        Column {
            heading: "USER",
            json_key: "uid",
            value: |one| Value::User(one.uid),
        },
        Column {
            heading: "POLICY",
            json_key: "policy",
            value: |one| {
                let policy = one.policy.map(|policy| policy.to_string());
                Value::Text(policy.unwrap_or_else(|| "none".to_owned()))
            },
        },
        Column {
            heading: "MAPPED",
            json_key: "mapped",
            value: |one| Value::Flag(one.mapped),
        },
        Column {
            heading: "MONITOR",
            json_key: "monitor",
            value: |one| Value::Flag(one.monitor),
        },
        Column {
            heading: "LAG",
            json_key: "lag",
            value: |one| Value::Number(one.lag),
        },
        Column {
            heading: "LOST",
            json_key: "lost",
            value: |one| Value::Number(one.lost),
        },
    ];
}

/// A line of `bus ls`.
struct ListedBus {
    name: Name,
    info: BusInfo,
}

impl Columns for ListedBus {
    const COLUMNS: &'static [Column<Self>] = &[
        Column {
            heading: "DELIVERY",
            json_key: "delivery",
            value: |bus| Value::Text(bus.info.mode.to_string()),
        },
        Column {
            heading: "SUBSCRIBERS",
            json_key: "readers",
            value: |bus| Value::Number(bus.info.subscribers.into()),
        },
        Column {
            heading: "SENDERS",
            json_key: "writers",
            value: |bus| Value::Number(bus.info.senders.into()),
        },
        Column {
            heading: "SENT",
            json_key: "sent",
            value: |bus| Value::Number(bus.info.sent),
        },
        Column {
            heading: "LAG",
            json_key: "lag",
            value: |bus| Value::Number(bus.info.lag),
        },
        Column {
            heading: "LOST",
            json_key: "lost",
            value: |bus| Value::Number(bus.info.lost),
        },
        Column {
            heading: "EVICTED",
            json_key: "evicted",
            value: |bus| Value::Number(bus.info.evicted),
        },
        Column {
            heading: "NAME",
            json_key: "name",
            value: |bus| Value::Text(bus.name.to_string()),
        },
    ];
}

/// What all channels have, and what only buses have.
#[derive(Serialize)]
pub struct BusObject {
    #[serde(flatten)]
    channel: ChannelRow,
    #[serde(flatten)]
    bus: Row<BusInfo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subscribers: Option<Vec<Row<SubscriberInfo>>>,
}

impl BusObject {
    pub fn query(channel: &Channel) -> sluice::Result<Self> {
        Ok(Self {
            channel: ChannelRow::from(&channel.info()?),
            bus: Row::from(&channel.bus_info()?),
            subscribers: None,
        })
    }

    fn table(&self, numeric: bool) -> String {
        let parts = [
            Some(table(std::slice::from_ref(&self.channel), numeric)),
            Some(table(std::slice::from_ref(&self.bus), numeric)),
            self.subscribers.as_ref().map(|rows| table(rows, numeric)),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join("\n")
    }
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let info = &arguments.info;
    let channel = info.channel.bus()?;
    let mut object = BusObject::query(&channel)?;
    if arguments.subscribers {
        object.subscribers = Some(subscribers(&channel)?);
    }
    match info.json {
        true => output::print_json(&object),
        false => output::print(&object.table(info.numeric)),
    }
}

/// Through an endpoint that sends nothing.
fn subscribers(channel: &Channel) -> Result<Vec<Row<SubscriberInfo>>> {
    let sender = Options::new().open_sender(&channel.options());
    let sender = sender.context("cannot list the subscribers")?;
    Ok(sender.subscribers()?.iter().map(Row::from).collect())
}

pub fn list(arguments: &ListArguments) -> Result<()> {
    let scope = arguments.scope.scope()?;
    let mut rows = Vec::new();
    let mut objects = Vec::new();
    for listed in sluice::list(&scope)? {
        let name = match listed? {
            listed if listed.kind == Kind::Bus => listed.name,
            _ => continue,
        };
        let channel = Channel::bus(name.as_bytes())?.in_scope(scope.clone());
        match (channel.bus_info(), BusObject::query(&channel)) {
            // Removed since.
            (Err(Error::NotFound { .. }), _) | (_, Err(Error::NotFound { .. })) => {}
            (info, object) => {
                let info = info?;
                rows.push(Row::from(&ListedBus { name, info }));
                objects.push(object?);
            }
        }
    }
    match arguments.json {
        true => output::print_json(&objects),
        false => output::print(&table(&rows, true)),
    }
}
