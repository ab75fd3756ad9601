// SPDX-License-Identifier: MIT OR Apache-2.0
use anyhow::Result;
use clap::Args;

use super::args::{DeliveryMode, DeliveryModeParser, PolicyName, new_bus};
use super::info::BusObject;
use crate::args::{self, ChannelArgs};
use crate::output;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    channel: ChannelArgs,

    /// Permission bits, in octal
    #[arg(long, value_name = "OCTAL", default_value = "600", value_parser = args::permissions)]
    permissions: u32,

    /// Who receives a message
    #[arg(long, value_name = "MODE", default_value = "broadcast", value_parser = DeliveryModeParser)]
    mode: DeliveryMode,

    /// Policies that subscribers may have [default: drop,evict]
    #[arg(long, value_name = "POLICY,...", value_delimiter = ',')]
    policies: Vec<PolicyName>,

    /// Let subscribers map the memory of the bus
    #[arg(long)]
    mappable: bool,

    /// Capacity, such as 65536, 64K or 1M [default: 1M]
    #[arg(long, value_name = "BYTES", alias = "size", value_parser = args::size)]
    capacity: Option<u64>,

    /// Print the new bus as a JSON object
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let channel = arguments.channel.bus()?;
    let options = new_bus(
        Some(arguments.mode),
        &arguments.policies,
        arguments.mappable,
        arguments.capacity,
    );
    options.create(&channel.options().mode(arguments.permissions))?;
    match arguments.json {
        true => output::print_json(&BusObject::query(&channel)?),
        false => Ok(()),
    }
}
