// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments that several commands share.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, IsTerminal as _, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;
use sluice::map::{OpenError, Options, VALUE_MAX};
use sluice::{Map, Name};
use sluice_abi::map::EVENTS_MAX;

use super::durable::DurableArgs;
use super::escape::unescape;
use super::mapped::MappedArgs;
use super::stored::ForceArgs;
use crate::args::{self, ChannelArgs, OpenChannelArgs, With};
use crate::output;
use crate::stream::{self, file_path};

/// Sets the limits of a new map.
pub fn new_map(
    map: Options,
    capacity: Option<u64>,
    entries: Option<u64>,
    events: Option<u32>,
) -> Options {
    map.with(capacity, Options::capacity)
        .with(entries, Options::entries)
        .with(events, Options::events)
}

/// How the commands that change or watch a map open it.
#[derive(Args)]
pub struct OpenMapArgs {
    /// The name of the map
    #[arg(id = "channel", value_name = "NAME", value_parser = args::name())]
    name: Name,

    #[command(flatten)]
    open: OpenChannelArgs,

    /// Capacity of a new map, up to {MAP_CAPACITY_MAX} [default: {MAP_CAPACITY}]
    ///
    /// The bytes that it may use: those of keys and values, about 200 per entry, and 32 per change that is kept. The suffixes K, M and G are
    /// units of 1024.
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, requires = "create", value_parser = args::size)]
    capacity: Option<u64>,

    /// The most entries of a new map [default: as many as fit into the capacity]
    #[arg(long, value_name = "N", requires = "create", value_parser = args::number(1u64..))]
    entries: Option<u64>,

    /// Changes that a new map keeps for watchers, up to {MAP_EVENTS_MAX} [default: {MAP_EVENTS}]
    ///
    /// Rounded up to a power of two. A watcher that is further behind misses changes.
    #[arg(long, value_name = "N", requires = "create", value_parser = args::number(1..=EVENTS_MAX))]
    events: Option<u32>,

    #[command(flatten)]
    mapped: MappedArgs,

    /// Restore the stored map of this name, or create a durable one; needs the daemon sluiced
    ///
    /// A stored map is restored with its own options. If there is a volatile map of this name, the command fails with the exit status 4.
    #[arg(long, requires = "create")]
    durable: bool,

    #[command(flatten)]
    durability: DurableArgs,

    #[command(flatten)]
    force: ForceArgs,
}

impl OpenMapArgs {
    /// Opens the map to change it.
    pub fn open_writer(&self) -> Result<Map> {
        self.open(Options::open_writer)
    }

    /// Opens the map to watch it.
    pub fn open_reader(&self) -> Result<Map> {
        self.open(Options::open_reader)
    }

    fn open(&self, open: impl FnOnce(&Options) -> Result<Map, OpenError>) -> Result<Map> {
        let map = self.open.apply(Map::named(self.name))?;
        let map = new_map(map, self.capacity, self.entries, self.events);
        let mut map = self.mapped.apply(map);
        if self.durable {
            map = map.durable(self.durability.durability()?);
        } else if self.open.creates() {
            self.force.check(&map.channel()?, self.open.directory())?;
        }
        Ok(open(&map)?)
    }

    pub fn name(&self) -> &Name {
        &self.name
    }

    pub fn directory(&self) -> Option<&Path> {
        self.open.directory()
    }
}

/// Opens an existing map to read it.
pub fn open_reader(channel: &ChannelArgs) -> Result<Map> {
    Ok(channel.options(Map::named)?.open_reader()?)
}

#[derive(Args)]
pub struct KeyArgs {
    /// The key, 1 to {KEY_MAX} bytes
    #[arg(allow_negative_numbers = true)]
    key: OsString,

    /// Interpret escapes in KEY, and in VALUE: \\, \n, \r, \t and \xHH
    #[arg(short, long)]
    escapes: bool,
}

impl KeyArgs {
    pub fn bytes(&self) -> Result<Vec<u8>> {
        self.decode(&self.key).context("invalid KEY")
    }

    fn decode(&self, argument: &OsStr) -> Result<Vec<u8>> {
        match self.escapes {
            true => unescape(argument.as_bytes()),
            false => Ok(argument.as_bytes().to_vec()),
        }
    }
}

/// Which keys are listed or watched.
#[derive(Args, Clone)]
pub struct PrefixArgs {
    /// Only keys that begin with this
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true,
        allow_negative_numbers = true
    )]
    prefix: OsString,
}

impl PrefixArgs {
    pub fn matches(&self, key: &[u8]) -> bool {
        key.starts_with(self.prefix.as_bytes())
    }
}

/// A value as an argument, in a file or in standard input.
#[derive(Args)]
#[group(multiple = false)]
pub struct ValueArgs {
    /// The value, up to {VALUE_MAX} [default: all of standard input]
    #[arg(allow_negative_numbers = true)]
    value: Option<OsString>,

    /// Read the value from this file; '-' is standard input
    #[arg(short, long)]
    file: Option<PathBuf>,
}

impl ValueArgs {
    pub fn bytes(&self, key: &KeyArgs) -> Result<Vec<u8>> {
        if let Some(value) = &self.value {
            return key.decode(value).context("invalid VALUE");
        }
        match file_path(&self.file) {
            Some(path) => {
                let show = || format!("cannot read {}; give a readable file", path.display());
                let file = File::open(path).with_context(show)?;
                read_value(file, show)
            }
            None => {
                stream::require_open(&io::stdin(), "input")?;
                if io::stdin().is_terminal() {
                    output::note(
                        "sluice: reading the value; end it with Ctrl-D, twice within a line",
                    );
                }
                read_value(io::stdin().lock(), || {
                    "cannot read standard input; fix it, or give the value as an argument"
                        .to_owned()
                })
            }
        }
    }
}

fn read_value(input: impl Read, failed: impl FnOnce() -> String) -> Result<Vec<u8>> {
    let mut value = Vec::new();
    let mut limited = input.take(VALUE_MAX as u64 + 1);
    limited.read_to_end(&mut value).with_context(failed)?;
    ensure!(
        value.len() <= VALUE_MAX,
        "the value has more than {VALUE_MAX} bytes, the limit; split it"
    );
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_read_up_to_the_limit() {
        let read = |length| read_value(io::repeat(b'x').take(length), String::new);
        for length in [0, 1, VALUE_MAX as u64] {
            assert_eq!(read(length).unwrap().len() as u64, length);
        }
        let error = read(u64::MAX).unwrap_err().to_string();
        assert!(error.contains("more than 1048576 bytes"), "{error}");
    }

    #[test]
    fn escapes_are_decoded_only_on_request() {
        let of = |escapes| KeyArgs {
            key: r"a\x00\n".into(),
            escapes,
        };
        assert_eq!(of(true).bytes().unwrap(), b"a\0\n");
        assert_eq!(of(false).bytes().unwrap(), br"a\x00\n");
        let value = ValueArgs {
            value: Some(r"\q".into()),
            file: None,
        };
        assert_eq!(value.bytes(&of(false)).unwrap(), br"\q");
        let error = value.bytes(&of(true)).unwrap_err();
        assert_eq!(error.to_string(), "invalid VALUE");
    }
}
