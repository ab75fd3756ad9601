// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting until changes of a durable map are stored.

use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;
use sluice::map::{OpenError, Options};
use sluice::{Error, Map};

use crate::args::{self, ChannelArgs};
use crate::output;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    pub(super) channel: ChannelArgs,

    /// The number of the change to wait for, which 'set --json' prints [default: the last change]
    #[arg(value_parser = args::number(1u64..))]
    number: Option<u64>,

    /// Print a JSON object with the number up to which all changes are stored
    #[arg(long)]
    json: bool,
}

/// The JSON object that sluice-map(1) describes.
#[derive(Serialize)]
struct Synced {
    stored: u64,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let map = open(&arguments.channel.options(Map::named)?)?;
    let synced = match arguments.number {
        Some(number) => map.sync_to(number),
        None => map.sync(),
    };
    let stored = synced.with_context(|| format!("syncing '{}'", arguments.channel.name()))?;
    match arguments.json {
        true => output::print_json(&Synced { stored }),
        false => Ok(()),
    }
}

/// Any permission suffices.
fn open(map: &Options) -> Result<Map, OpenError> {
    match map.open_reader() {
        Err(OpenError::Open(Error::PermissionDenied { .. })) => map.open_writer(),
        other => other,
    }
}
