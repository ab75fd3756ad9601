// SPDX-License-Identifier: MIT OR Apache-2.0
use std::os::unix::ffi::OsStrExt as _;

use anyhow::Result;
use clap::Args;
use serde::Serialize;
use sluice::{ChannelInfo, Kind, Name, Scope};

use crate::args::ScopeArgs;
use crate::channel_row::ChannelRow;
use crate::table::{Columns, Row, table};
use crate::{cgroup, output};

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    scope: ScopeArgs,

    /// List the channels of all cgroups, each cgroup with its directory; needs root
    #[arg(long, conflicts_with = "scope")]
    all: bool,

    #[command(flatten)]
    format: Format,
}

/// A channel in the list of all cgroups.
#[derive(Serialize)]
struct Found {
    scope: String,
    #[serde(flatten)]
    channel: ChannelRow,
}

#[derive(Args)]
pub struct Format {
    /// Print user and group IDs instead of names
    ///
    /// IDs without a name are always printed as numbers, and so are all IDs in JSON.
    #[arg(short, long)]
    numeric: bool,

    /// Print a JSON array instead of a table
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    run_filtered(arguments, |_| true)
}

/// Lists the channels of the scope that match `filter`.
pub fn run_filtered(arguments: &Arguments, filter: impl Fn(&ChannelInfo) -> bool) -> Result<()> {
    match arguments.all {
        true => print_all(&arguments.format, filter),
        false => print(&arguments.scope.scope()?, &arguments.format, filter),
    }
}

/// A cgroup that is removed meanwhile is not listed.
fn print_all(format: &Format, filter: impl Fn(&ChannelInfo) -> bool) -> Result<()> {
    let (mut text, mut objects) = (String::new(), Vec::new());
    let directories = cgroup::directories()?;
    for scope in &directories {
        let listed = Scope::at(scope).and_then(|scope| rows(&scope, &filter));
        let channels = match listed {
            Err(_) if !scope.exists() => continue,
            listed => listed?,
        };
        let directory = output::shown(scope.as_os_str().as_bytes());
        match format.json {
            true => objects.extend(channels.into_iter().map(|channel| Found {
                scope: directory.clone(),
                channel,
            })),
            false if channels.is_empty() => {}
            false => {
                let separator = if text.is_empty() { "" } else { "\n" };
                let table = table(&channels, format.numeric);
                text += &format!("{separator}{directory}:\n{table}");
            }
        }
    }
    match format.json {
        true => output::print_json(&objects),
        false => output::print(&text),
    }
}

/// Prints the channels of this scope that match `filter`.
pub fn print(scope: &Scope, format: &Format, filter: impl Fn(&ChannelInfo) -> bool) -> Result<()> {
    let channels = rows(scope, filter)?;
    match format.json {
        true => output::print_json(&channels),
        false => output::print(&table(&channels, format.numeric)),
    }
}

fn rows(scope: &Scope, filter: impl Fn(&ChannelInfo) -> bool) -> sluice::Result<Vec<ChannelRow>> {
    let mut channels = Vec::new();
    for channel in sluice::list(scope)? {
        let channel = channel?;
        if filter(&channel) {
            channels.push(ChannelRow::from(&channel));
        }
    }
    Ok(channels)
}

/// Prints the channels of this kind, of which `query` returns the row and the object for JSON.
pub fn print_kind<T: Columns, O: Serialize>(
    scope: &Scope,
    kind: Kind,
    json: bool,
    query: impl Fn(Name) -> sluice::Result<(Row<T>, O)>,
) -> Result<()> {
    let (mut rows, mut objects) = (Vec::new(), Vec::new());
    for listed in sluice::list(scope)? {
        let listed = listed?;
        if listed.kind != kind {
            continue;
        }
        match query(listed.name) {
            // Removed since.
            Err(sluice::Error::NotFound { .. }) => {}
            queried => {
                let (row, object) = queried?;
                rows.push(row);
                objects.push(object);
            }
        }
    }
    match json {
        true => output::print_json(&objects),
        false => output::print(&table(&rows, true)),
    }
}
