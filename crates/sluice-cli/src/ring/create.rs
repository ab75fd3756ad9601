// SPDX-License-Identifier: MIT OR Apache-2.0
use anyhow::Result;
use clap::Args;
use sluice::{Options, Ring};

use super::info::RingObject;
use crate::args::{self, ChannelArgs, NewChannelArgs, With};
use crate::output;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    channel: ChannelArgs,

    #[command(flatten)]
    new: NewChannelArgs,

    /// Capacity of a new ring, up to {RING_CAPACITY_MAX} [default: {RING_CAPACITY}]
    ///
    /// Rounded up to a power of two, of at least a page. The suffixes K, M and G are units of 1024. A record occupies its length plus 8
    /// bytes, rounded up to a multiple of 8, and at most half of the capacity.
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, value_parser = args::size)]
    capacity: Option<u64>,

    /// Allocate the memory of a new ring from this NUMA node
    #[arg(long, value_name = "N", value_parser = args::number(0u32..))]
    node: Option<u32>,

    /// Print the new ring as a JSON object
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let ring = arguments.channel.options(Ring::named)?;
    let ring = arguments.new.apply(ring);
    let ring = ring.with(arguments.capacity, Options::capacity);
    let ring = ring.with(arguments.node, Options::numa_node);
    ring.create_persistent()?;
    match arguments.json {
        true => output::print_json(&RingObject::query(&ring)?),
        false => Ok(()),
    }
}
