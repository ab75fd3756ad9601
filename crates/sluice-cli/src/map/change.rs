// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changes of one entry.

use std::time::Duration;

use anyhow::{Error, Result};
use clap::Args;
use serde::Serialize;
use sluice::map::{DeleteOptions, SetOptions, WriteError};
use sluice::{Map, Name, escape};

use super::args::{KeyArgs, OpenMapArgs, ValueArgs};
use super::get::NoSuchKey;
use crate::args::{self, ChannelArgs};
use crate::output;

#[derive(Args)]
pub struct SetArguments {
    #[command(flatten)]
    pub(super) map: OpenMapArgs,

    #[command(flatten)]
    key: KeyArgs,

    #[command(flatten)]
    change: ChangeArgs,
}

#[derive(Args)]
#[command(override_usage = "sluice map cas [OPTIONS] <NAME> <KEY> <VERSION>
                      [VALUE]")]
pub struct CasArguments {
    #[command(flatten)]
    pub(super) map: OpenMapArgs,

    #[command(flatten)]
    key: KeyArgs,

    /// The version that the entry must have; 0: there must be no entry
    #[arg(value_parser = args::number(0u64..))]
    version: u64,

    #[command(flatten)]
    change: ChangeArgs,
}

#[derive(Args)]
struct ChangeArgs {
    #[command(flatten)]
    value: ValueArgs,

    /// Remove the entry after this time, such as 500ms, 30s, 5m or 1d [default: never]
    ///
    /// The units are ns, us, ms, s, m, h and d. The time in which the system is suspended counts. The next set or cas replaces the time.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = args::time)]
    ttl: Option<Duration>,

    /// Of a durable map: do not wait until the change is stored, nor for room
    ///
    /// No effect on other maps.
    #[arg(long)]
    nowait: bool,

    /// Print a JSON object with the new version
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub struct DelArguments {
    #[command(flatten)]
    pub(super) channel: ChannelArgs,

    #[command(flatten)]
    key: KeyArgs,

    /// Delete the entry only if it has this version
    #[arg(long, value_name = "VERSION", value_parser = args::number(1u64..))]
    if_version: Option<u64>,

    /// Of a durable map: do not wait until the change is stored, nor for room
    ///
    /// No effect on other maps.
    #[arg(long)]
    nowait: bool,

    /// Print a JSON object with the number of the change
    #[arg(long)]
    json: bool,
}

/// The JSON object that sluice-map(1) describes.
#[derive(Serialize)]
struct Changed {
    #[serde(skip_serializing_if = "Option::is_none")]
    created: Option<bool>,
    version: u64,
}

pub fn set(arguments: &SetArguments) -> Result<()> {
    let SetArguments { map, key, change } = arguments;
    change_entry(map, key, change, SetOptions::new())
}

pub fn cas(arguments: &CasArguments) -> Result<()> {
    let CasArguments {
        map, key, change, ..
    } = arguments;
    let options = SetOptions::new().if_version(arguments.version);
    change_entry(map, key, change, options)
}

fn change_entry(
    map: &OpenMapArgs,
    key: &KeyArgs,
    change: &ChangeArgs,
    options: SetOptions,
) -> Result<()> {
    // Read first: it may take long, and fail.
    let (key, value) = (key.bytes()?, change.value.bytes(key)?);
    let options = match change.ttl {
        Some(time) => options.time_to_live(time),
        None => options,
    };
    let set = map
        .open_writer()?
        .set_with(&key, &value, options.nowait(change.nowait))
        .map_err(|error| explain(error, ["cannot set", "set"], &key, map.name()))?;
    print(change.json, Some(set.created), set.version)
}

pub fn del(arguments: &DelArguments) -> Result<()> {
    let key = arguments.key.bytes()?;
    let map = arguments.channel.options(Map::named)?.open_writer()?;
    let name = arguments.channel.name();
    let options = DeleteOptions::new().nowait(arguments.nowait);
    let options = match arguments.if_version {
        Some(version) => options.if_version(version),
        None => options,
    };
    let deleted = map
        .delete_with(&key, options)
        .map_err(|error| explain(error, ["cannot delete", "deleted"], &key, name))?;
    let version = deleted.ok_or_else(|| NoSuchKey::new(&key, name))?;
    print(arguments.json, None, version)
}

/// `verbs`: of a change that is not made, and of one that is made nevertheless.
fn explain(error: WriteError, verbs: [&str; 2], key: &[u8], map: &Name) -> Error {
    let is_made = matches!(error, WriteError::Unacknowledged { .. });
    let verb = verbs[usize::from(is_made)];
    Error::new(error).context(format!("{verb} '{}' in '{map}'", escape(key)))
}

fn print(json: bool, created: Option<bool>, version: u64) -> Result<()> {
    match json {
        true => output::print_json(&Changed { created, version }),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_is_made_has_not_failed() {
        let map = Name::new("jobs").unwrap();
        let text = |error| format!("{:#}", explain(error, ["cannot set", "set"], b"4711", &map));
        let refused = text(WriteError::Refused);
        assert!(
            refused.starts_with("cannot set '4711' in 'jobs': refused, nothing is changed"),
            "{refused}"
        );
        let made = text(WriteError::Unacknowledged { number: 7 });
        assert!(
            made.starts_with("set '4711' in 'jobs': change 7 is made, but not known to be stored"),
            "{made}"
        );
    }
}
