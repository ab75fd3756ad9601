// SPDX-License-Identifier: MIT OR Apache-2.0
//! `sluice metrics`: the state of the channels for Prometheus, as OpenMetrics text.

mod encode;

use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use sluice_metrics::{Address, encode};

use self::encode::Snapshot;
use crate::channels::SelectionArgs;
use crate::output;
use crate::signals::FinalReport;

/// For how long metrics can be taken without a note: half of the time that Prometheus gives a request by default.
const SLOW: Duration = Duration::from_secs(5);

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
        None => output::print(&encode(Snapshot::take(selection)?)?),
        Some(address) => serve(selection, address),
    }
}

fn serve(selection: &SelectionArgs, address: &Address) -> Result<()> {
    let (listener, page) = address.bind()?;
    let bound = address.clone();
    // Also without a socket to remove: the first process of a container would ignore the signal.
    FinalReport::new(move || bound.release())?;
    output::note(&format!("sluice: metrics at {page}"));
    let mut was_slow = false;
    sluice_metrics::serve(&listener, || {
        let started = Instant::now();
        let snapshot = Snapshot::take(selection).unwrap_or_else(|error| {
            output::note(&format!("sluice: {}", sluice::explain(error.as_ref())));
            Snapshot::default()
        });
        let encoded = encode(snapshot);
        let time = started.elapsed();
        if time > SLOW && !was_slow {
            was_slow = true;
            output::note(&format!(
                "sluice: the metrics took {} s; select channels with --kind or --scope, or allow requests more time",
                time.as_secs()
            ));
        }
        encoded
    })
}
