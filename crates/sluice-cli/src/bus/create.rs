// SPDX-License-Identifier: MIT OR Apache-2.0
use anyhow::Result;
use clap::Args;
use sluice::Bus;

use super::args::{DeliveryMode, PolicyName, new_bus};
use super::info::BusObject;
use crate::args::{self, ChannelArgs, NewChannelArgs};
use crate::output;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    channel: ChannelArgs,

    #[command(flatten)]
    new: NewChannelArgs,

    /// Who receives a message of a new bus [default: {BUS_MODE}]
    #[arg(long, value_name = "MODE", value_enum)]
    mode: Option<DeliveryMode>,

    /// Policies that subscribers of a new bus may choose [default: drop,evict]
    ///
    /// By default no subscriber can delay senders. A unicast bus has no policies.
    #[arg(long, value_name = "POLICY,...", value_delimiter = ',')]
    policies: Vec<PolicyName>,

    /// Let subscribers of a new bus map its memory
    ///
    /// Only of a broadcast bus with block among its policies.
    #[arg(long)]
    mappable: bool,

    /// Capacity of a new bus, up to {BUS_CAPACITY_MAX} [default: {BUS_CAPACITY}]
    ///
    /// Rounded up to a power of two of pages. The suffixes K, M and G are units of 1024. A message has at most half of it less 64 bytes, and
    /// at most {BUS_MESSAGE_MAX}.
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, value_parser = args::size)]
    capacity: Option<u64>,

    /// Print the new bus as a JSON object
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let bus = arguments.channel.options(Bus::named)?;
    let bus = new_bus(
        arguments.new.apply(bus),
        arguments.mode,
        &arguments.policies,
        arguments.mappable,
        arguments.capacity,
    );
    bus.create_persistent()?;
    match arguments.json {
        true => output::print_json(&BusObject::query(&bus)?),
        false => Ok(()),
    }
}
