// SPDX-License-Identifier: MIT OR Apache-2.0
use anyhow::{Error, Result};
use clap::Args;
use sluice::Channel;
use sluice::map::OpenError;

use super::args::new_map;
use super::durable::DurableArgs;
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

    /// Store the map, and restore it after a restart of the host; needs the daemon sluiced
    #[arg(long)]
    durable: bool,

    #[command(flatten)]
    durability: DurableArgs,

    /// Print the new map as a JSON object
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let channel = arguments.channel.map()?;
    let mut options = new_map(arguments.capacity, arguments.entries, arguments.events);
    if arguments.durable {
        options = options.durable(arguments.durability.durability()?);
    }
    options
        .create(&channel.options().mode(arguments.permissions))
        .map_err(|error| explain(error, &channel))?;
    match arguments.json {
        true => output::print_json(&MapObject::query(&channel)?),
        false => Ok(()),
    }
}

/// A map may be stored, and not loaded.
fn explain(error: OpenError, channel: &Channel) -> Error {
    let exists = matches!(&error, OpenError::Open(sluice::Error::AlreadyExists { .. }));
    let is_loaded = || !matches!(channel.info(), Err(sluice::Error::NotFound { .. }));
    match exists && !is_loaded() {
        true => Error::new(error).context(format!(
            "'{0}' is stored, but not attached; run 'sluice map attach {0}', or 'sluice map forget {0}'",
            channel.name()
        )),
        false => error.into(),
    }
}
