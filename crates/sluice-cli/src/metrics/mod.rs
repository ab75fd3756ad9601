// SPDX-License-Identifier: MIT OR Apache-2.0
//! `sluice metrics`: the state of the channels for Prometheus, as OpenMetrics text.

mod encode;
mod http;
mod listener;

use anyhow::Result;
use clap::Args;

use self::encode::Snapshot;
use self::listener::Address;
use crate::channels::SelectionArgs;
use crate::output;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    selection: SelectionArgs,

    /// Serve the metrics over HTTP at this address, until interrupted, instead of printing them
    ///
    /// HOST:PORT, such as 127.0.0.1:9750, or the path of a Unix socket, with a slash. The metrics are at /metrics.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<Address>,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let selection = &arguments.selection;
    match &arguments.listen {
        None => output::print(&Snapshot::take(selection)?.encode()?),
        Some(address) => http::serve(&address.bind()?, || {
            let snapshot = Snapshot::take(selection).unwrap_or_else(|error| {
                output::note(&format!("sluice: {}", sluice::explain(error.as_ref())));
                Snapshot::default()
            });
            snapshot.encode()
        }),
    }
}
