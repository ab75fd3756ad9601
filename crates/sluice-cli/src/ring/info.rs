// SPDX-License-Identifier: MIT OR Apache-2.0
use anyhow::Result;
use serde::Serialize;
use sluice::ring::RingInfo;
use sluice::{Options, Ring};

use crate::args::InfoArgs;
use crate::channel_row::ChannelRow;
use crate::output;
use crate::table::{Column, Columns, Row, Value, table};

/// sluice(1) describes them, for the table and for JSON, and `tests/src/suite/ring_cli.rs` compares them.
impl Columns for RingInfo {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("PRODUCER", "producer", |ring| {
            Value::Text(ring.producer.to_string())
        }),
        Column::new("CONSUMER", "consumer", |ring| {
            Value::Text(ring.consumer.to_string())
        }),
        Column::new("NODE", "node", |ring| Value::Node(ring.numa_node)),
        Column::new("PUBLISHED", "published", |ring| {
            Value::Number(ring.published)
        }),
        Column::new("RELEASED", "released", |ring| Value::Number(ring.released)),
    ];
}

/// What all channels have, and what only rings have.
#[derive(Serialize)]
pub struct RingObject {
    #[serde(flatten)]
    channel: ChannelRow,
    #[serde(flatten)]
    ring: Row<RingInfo>,
}

impl RingObject {
    pub fn query(ring: &Options<Ring>) -> sluice::Result<Self> {
        Ok(Self {
            channel: ChannelRow::from(&ring.channel()?.info()?),
            ring: Row::from(&ring.info()?),
        })
    }
}

pub fn run(arguments: &InfoArgs) -> Result<()> {
    let object = RingObject::query(&arguments.channel.options(Ring::named)?)?;
    if arguments.json {
        return output::print_json(&object);
    }
    let channel = table(&[object.channel], arguments.numeric);
    let ring = table(&[object.ring], arguments.numeric);
    output::print(&format!("{channel}\n{ring}"))
}
