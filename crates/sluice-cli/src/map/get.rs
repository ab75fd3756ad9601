// SPDX-License-Identifier: MIT OR Apache-2.0
use std::fmt;

use anyhow::{Context, Result};
use clap::Args;
use sluice::Name;
use sluice::escape;

use super::args::{KeyArgs, open_reader};
use super::object::EntryObject;
use crate::args::ChannelArgs;
use crate::output;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    pub(super) channel: ChannelArgs,

    #[command(flatten)]
    key: KeyArgs,

    /// Print a JSON object with version and time to live instead of the bytes of the value
    #[arg(long)]
    json: bool,
}

/// The map has no entry of this key.
#[derive(Debug)]
pub struct NoSuchKey {
    key: String,
    map: String,
}

impl NoSuchKey {
    pub fn new(key: &[u8], map: &Name) -> Self {
        Self {
            key: escape(key),
            map: map.to_string(),
        }
    }
}

impl fmt::Display for NoSuchKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, map } = self;
        write!(
            f,
            "no key '{key}' in the map '{map}'; 'sluice map ls {map}' lists its keys"
        )
    }
}

impl std::error::Error for NoSuchKey {}

pub fn run(arguments: &Arguments) -> Result<()> {
    let key = arguments.key.bytes()?;
    let map = open_reader(&arguments.channel)?;
    let entry = map
        .get(&key)
        .with_context(|| format!("cannot get '{}'", escape(&key)))?;
    let entry = entry.ok_or_else(|| NoSuchKey::new(&key, arguments.channel.name()))?;
    match arguments.json {
        true => output::print_json(&EntryObject::new(&key, &entry)),
        false => output::print_value(&entry.value),
    }
}
