// SPDX-License-Identifier: MIT OR Apache-2.0
use std::os::unix::ffi::OsStrExt as _;

use anyhow::Result;
use clap::Args;
use serde::Serialize;
use sluice::{ChannelInfo, Kind, Scope};

use crate::args::ScopeArgs;
use crate::channel_row::ChannelRow;
use crate::table::{Columns, Row, table};
use crate::{cgroup, output};

#[derive(Args)]
#[group(id = "list_options")]
pub struct Arguments {
    #[command(flatten)]
    scope: ScopeArgs,

    /// List those of all cgroups, each cgroup with its directory; needs root
    #[arg(long, conflicts_with = "scope")]
    all: bool,

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
    pub json: bool,
}

/// What is listed of one scope: a row of the table, and the object for JSON.
struct Listed<T, O> {
    row: Row<T>,
    object: O,
}

/// An object in the list of all cgroups.
#[derive(Serialize)]
struct Found<O> {
    scope: String,
    #[serde(flatten)]
    object: O,
}

impl Arguments {
    pub fn scope(&self) -> sluice::Result<Scope> {
        self.scope.scope()
    }

    pub fn json(&self) -> bool {
        self.format.json
    }
}

pub fn run(arguments: &Arguments) -> Result<()> {
    print_lists(arguments, |scope| channels(scope, None))
}

/// Lists the channels of this kind, with the columns that all kinds have.
pub fn run_kind(arguments: &Arguments, kind: Kind) -> Result<()> {
    sluice::features()?.require(kind)?;
    print_lists(arguments, |scope| channels(scope, Some(kind)))
}

/// Lists the channels of this kind with the columns that `query` returns. A channel that is removed meanwhile is not listed.
pub fn run_kind_with<T: Columns, O: Serialize>(
    arguments: &Arguments,
    kind: Kind,
    query: impl Fn(&Scope, ChannelInfo) -> sluice::Result<(Row<T>, O)>,
) -> Result<()> {
    sluice::features()?.require(kind)?;
    print_lists(arguments, |scope| {
        list(scope, |channel| {
            if channel.kind != kind {
                return Ok(None);
            }
            match query(scope, channel) {
                Err(sluice::Error::NotFound { .. }) => Ok(None),
                queried => queried.map(Some),
            }
        })
    })
}

/// Lists the feeds, which are in the root scope.
pub fn run_feeds(format: &Format) -> Result<()> {
    sluice::features()?.require(Kind::Feed)?;
    print(channels(&Scope::root(), Some(Kind::Feed))?, format)
}

/// Those of a kind, or of all kinds.
fn channels(
    scope: &Scope,
    kind: Option<Kind>,
) -> sluice::Result<Vec<Listed<ChannelInfo, ChannelRow>>> {
    list(scope, |channel| {
        let is_listed = kind.is_none_or(|kind| channel.kind == kind);
        let row = || ChannelRow::from(&channel);
        Ok(is_listed.then(|| (row(), row())))
    })
}

fn list<T, O>(
    scope: &Scope,
    show: impl Fn(ChannelInfo) -> sluice::Result<Option<(Row<T>, O)>>,
) -> sluice::Result<Vec<Listed<T, O>>> {
    let mut all = Vec::new();
    for channel in sluice::list(scope)? {
        let shown = show(channel?)?;
        all.extend(shown.map(|(row, object)| Listed { row, object }));
    }
    Ok(all)
}

/// Prints the list of one scope, or a list per cgroup.
fn print_lists<T: Columns, O: Serialize>(
    arguments: &Arguments,
    list: impl Fn(&Scope) -> sluice::Result<Vec<Listed<T, O>>>,
) -> Result<()> {
    match arguments.all {
        true => print_all(&arguments.format, list),
        false => print(list(&arguments.scope()?)?, &arguments.format),
    }
}

/// A cgroup that is removed meanwhile is not listed.
fn print_all<T: Columns, O: Serialize>(
    format: &Format,
    list: impl Fn(&Scope) -> sluice::Result<Vec<Listed<T, O>>>,
) -> Result<()> {
    let (mut text, mut objects) = (String::new(), Vec::new());
    cgroup::each_scope(&cgroup::root()?, |path, scope| {
        let listed = list(scope)?;
        let scope = output::shown(path.as_os_str().as_bytes());
        if !listed.is_empty() && !format.json {
            let separator = if text.is_empty() { "" } else { "\n" };
            let rows = listed.iter().map(|one| &one.row);
            text += &format!("{separator}{scope}:\n{}", table(rows, format.numeric));
        }
        objects.extend(listed.into_iter().map(|one| Found {
            scope: scope.clone(),
            object: one.object,
        }));
        Ok(())
    })?;
    match format.json {
        true => output::print_json(&objects),
        false => output::print(&text),
    }
}

fn print<T: Columns, O: Serialize>(listed: Vec<Listed<T, O>>, format: &Format) -> Result<()> {
    match format.json {
        true => output::print_json(&listed.iter().map(|one| &one.object).collect::<Vec<_>>()),
        false => output::print(&table(listed.iter().map(|one| &one.row), format.numeric)),
    }
}
