// SPDX-License-Identifier: MIT OR Apache-2.0
use anyhow::Result;
use clap::Args;

use super::args::new_map;
use super::info::MapObject;
use crate::args::{self, ChannelArgs};
use crate::output;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    channel: ChannelArgs,

    /// Permission bits, in octal
    #[arg(long, visible_alias = "mode", value_name = "OCTAL", default_value = "600", value_parser = args::permissions)]
    permissions: u32,

    /// Capacity, such as 65536, 64K or 1M [default: 4M]
    #[arg(long, value_name = "BYTES", alias = "size", value_parser = args::size)]
    capacity: Option<u64>,

    /// The most entries [default: as many as fit into the capacity]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    entries: Option<u64>,

    /// Changes that are kept for watchers, up to 65536 [default: 1024]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    events: Option<u32>,

    /// Print the new map as a JSON object
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let channel = arguments.channel.map()?;
    let options = new_map(arguments.capacity, arguments.entries, arguments.events);
    options.create(&channel.options().mode(arguments.permissions))?;
    match arguments.json {
        true => output::print_json(&MapObject::query(&channel)?),
        false => Ok(()),
    }
}
