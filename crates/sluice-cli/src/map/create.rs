// SPDX-License-Identifier: MIT OR Apache-2.0
use anyhow::{Error, Result};
use clap::Args;
use sluice::map::{OpenError, Options};
use sluice::{Map, Name};
use sluice_abi::map::EVENTS_MAX;

use super::args::new_map;
use super::durable::DurableArgs;
use super::info::MapObject;
use super::mapped::MappedArgs;
use super::stored::ForceArgs;
use crate::args::{self, ChannelArgs, NewChannelArgs};
use crate::output;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    channel: ChannelArgs,

    #[command(flatten)]
    new: NewChannelArgs,

    /// Capacity of a new map, up to {MAP_CAPACITY_MAX} [default: {MAP_CAPACITY}]
    ///
    /// The bytes that it may use: those of keys and values, about 200 per entry, and 32 per change that is kept. The suffixes K, M and G are
    /// units of 1024.
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, value_parser = args::size)]
    capacity: Option<u64>,

    /// The most entries of a new map [default: as many as fit into the capacity]
    #[arg(long, value_name = "N", value_parser = args::number(1u64..))]
    entries: Option<u64>,

    /// Changes that a new map keeps for watchers, up to {MAP_EVENTS_MAX} [default: {MAP_EVENTS}]
    ///
    /// Rounded up to a power of two. A watcher that is further behind misses changes.
    #[arg(long, value_name = "N", value_parser = args::number(1..=EVENTS_MAX))]
    events: Option<u32>,

    #[command(flatten)]
    mapped: MappedArgs,

    /// Store the new map, and restore it after a restart of the host; needs the daemon sluiced
    #[arg(long)]
    durable: bool,

    #[command(flatten)]
    durability: DurableArgs,

    #[command(flatten)]
    force: ForceArgs,

    /// Print the new map as a JSON object
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let map = arguments.channel.options(Map::named)?;
    let (entries, events) = (arguments.entries, arguments.events);
    let mut map = new_map(
        arguments.new.apply(map),
        arguments.capacity,
        entries,
        events,
    );
    map = arguments.mapped.apply(map);
    let (name, directory) = arguments.channel.place();
    match arguments.durable {
        true => map = map.durable(arguments.durability.durability()?),
        false => arguments.force.check(&map.channel()?, directory)?,
    }
    map.create_persistent()
        .map_err(|error| explain(error, &map, name))?;
    match arguments.json {
        true => output::print_json(&MapObject::query(&map)?),
        false => Ok(()),
    }
}

/// A map may be stored, and not loaded.
fn explain(error: OpenError, map: &Options, name: &Name) -> Error {
    let exists = matches!(&error, OpenError::Open(sluice::Error::AlreadyExists { .. }));
    let is_loaded = || !matches!(map.info(), Err(sluice::Error::NotFound { .. }));
    match exists && !is_loaded() {
        true => Error::new(error).context(format!(
            "'{name}' is stored, but not attached; run 'sluice store attach {name}', or 'sluice store forget {name}'"
        )),
        false => error.into(),
    }
}
