// SPDX-License-Identifier: MIT OR Apache-2.0
use anyhow::Result;
use clap::Args;
use sluice::ring::Options;

use super::info::RingObject;
use crate::args::{ChannelArgs, NewChannelArgs};
use crate::output;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    channel: ChannelArgs,

    #[command(flatten)]
    new: NewChannelArgs,

    /// Allocate the memory of the ring from this NUMA node
    #[arg(long, value_name = "N")]
    node: Option<u32>,

    /// Print the new ring as a JSON object
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let channel = arguments.channel.ring()?;
    let mut options = Options::new();
    if let Some(size) = arguments.new.size {
        options = options.capacity(size);
    }
    if let Some(node) = arguments.node {
        options = options.numa_node(node);
    }
    options.create(&channel.options().mode(arguments.new.permissions))?;
    match arguments.json {
        true => output::print_json(&RingObject::query(&channel)?),
        false => Ok(()),
    }
}
