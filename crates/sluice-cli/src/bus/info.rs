// SPDX-License-Identifier: MIT OR Apache-2.0
use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;
use sluice::bus::{BusInfo, Options, SubscriberInfo};
use sluice::{Bus, ChannelInfo, Kind};

use crate::args::InfoArgs;
use crate::channel_row::ChannelRow;
use crate::table::{Column, Columns, Row, Value, table};
use crate::{ls, output};

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

/// sluice-bus(1) describes them, for the table and for JSON, and `tests/src/suite/bus_cli.rs` compares them.
impl Columns for BusInfo {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("DELIVERY", "delivery", |bus| {
            Value::Text(bus.mode.to_string())
        }),
        Column::new("POLICIES", "policies", |bus| {
            match bus.policies.is_empty() {
                true => Value::Text("none".to_owned()),
                false => Value::Text(bus.policies.to_string()),
            }
        }),
        Column::new("MAPPABLE", "mappable", |bus| Value::Flag(bus.mappable)),
        Column::new("LARGEST", "message_max", |bus| {
            Value::Number(bus.message_max)
        }),
        Column::new("SENT", "sent", |bus| Value::Number(bus.sent)),
        Column::new("UNSUBSCRIBED", "unsubscribed", |bus| {
            Value::Number(bus.unsubscribed)
        }),
        Column::new("LAG", "lag", |bus| Value::Number(bus.lag)),
        Column::new("LOST", "lost", |bus| Value::Number(bus.lost)),
        Column::new("EVICTED", "evicted", |bus| Value::Number(bus.evicted)),
    ];
}

impl Columns for SubscriberInfo {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("ID", "id", |one| Value::Number(one.id)),
        Column::new("PID", "pid", |one| {
            Value::Number(one.pid.unwrap_or_default().into())
        }),
        Column::new("USER", "uid", |one| Value::User(one.uid)),
        Column::new("POLICY", "policy", |one| {
            let policy = one.policy.map(|policy| policy.to_string());
            Value::Text(policy.unwrap_or_else(|| "none".to_owned()))
        }),
        Column::new("MAPPED", "mapped", |one| Value::Flag(one.mapped)),
        Column::new("MONITOR", "monitor", |one| Value::Flag(one.monitor)),
        Column::new("CLIENT", "client", |one| Value::Flag(one.client)),
        Column::new("LAG", "lag", |one| Value::Number(one.lag)),
        Column::new("LOST", "lost", |one| Value::Number(one.lost)),
    ];
}

/// A line of `bus ls`.
struct ListedBus {
    channel: ChannelInfo,
    info: BusInfo,
}

impl Columns for ListedBus {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("USER", "uid", |bus| Value::User(bus.channel.uid)),
        Column::new("DELIVERY", "delivery", |bus| {
            Value::Text(bus.info.mode.to_string())
        }),
        Column::new("SUBSCRIBERS", "readers", |bus| {
            Value::Number(bus.info.subscribers.into())
        }),
        Column::new("SENDERS", "writers", |bus| {
            Value::Number(bus.info.senders.into())
        }),
        Column::new("SENT", "sent", |bus| Value::Number(bus.info.sent)),
        Column::new("LAG", "lag", |bus| Value::Number(bus.info.lag)),
        Column::new("LOST", "lost", |bus| Value::Number(bus.info.lost)),
        Column::new("EVICTED", "evicted", |bus| Value::Number(bus.info.evicted)),
        Column::new("NAME", "name", |bus| {
            Value::Text(bus.channel.name.to_string())
        }),
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
    pub fn query(bus: &Options) -> sluice::Result<Self> {
        Ok(Self {
            channel: ChannelRow::from(&bus.channel()?.info()?),
            bus: Row::from(&bus.info()?),
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
    let bus = info.channel.options(Bus::named)?;
    let mut object = BusObject::query(&bus)?;
    if arguments.subscribers {
        object.subscribers = Some(subscribers(&bus)?);
    }
    match info.json {
        true => output::print_json(&object),
        false => output::print(&object.table(info.numeric)),
    }
}

/// Through an endpoint that sends nothing.
fn subscribers(bus: &Options) -> Result<Vec<Row<SubscriberInfo>>> {
    let sender = bus.sender().context("cannot list the subscribers")?;
    Ok(sender.subscribers()?.iter().map(Row::from).collect())
}

pub fn list(arguments: &ls::Arguments) -> Result<()> {
    ls::run_kind_with(arguments, Kind::Bus, |scope, channel| {
        let bus = Bus::named(channel.name).scope(scope.clone());
        let (info, object) = (bus.info()?, BusObject::query(&bus)?);
        Ok((Row::from(&ListedBus { channel, info }), object))
    })
}
