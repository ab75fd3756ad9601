// SPDX-License-Identifier: MIT OR Apache-2.0
use anyhow::Result;
use clap::Args;
use serde::Serialize;
use sluice::{ChannelInfo, Kind, Name, Scope};

use crate::args::ScopeArgs;
use crate::channel_row::ChannelRow;
use crate::output;
use crate::table::{Columns, Row, table};

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    scope: ScopeArgs,

    #[command(flatten)]
    format: Format,
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
    print(&arguments.scope.scope()?, &arguments.format, filter)
}

/// Prints the channels of this scope that match `filter`.
pub fn print(scope: &Scope, format: &Format, filter: impl Fn(&ChannelInfo) -> bool) -> Result<()> {
    let mut channels = Vec::new();
    for channel in sluice::list(scope)? {
        let channel = channel?;
        if filter(&channel) {
            channels.push(ChannelRow::from(&channel));
        }
    }
    match format.json {
        true => output::print_json(&channels),
        false => output::print(&table(&channels, format.numeric)),
    }
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
