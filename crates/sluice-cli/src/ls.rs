// SPDX-License-Identifier: MIT OR Apache-2.0
use anyhow::Result;
use clap::Args;
use sluice::ChannelInfo;

use crate::output::{self, Described};
use crate::place::Place;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    place: Place,

    /// Print a JSON array instead of a table
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    show(arguments, |_| true)
}

/// Those channels of the scope that are wanted.
pub fn show(arguments: &Arguments, wanted: impl Fn(&ChannelInfo) -> bool) -> Result<()> {
    let mut channels = Vec::new();
    for channel in sluice::list(&arguments.place.scope()?)? {
        let channel = channel?;
        if wanted(&channel) {
            channels.push(Described::from(&channel));
        }
    }
    match arguments.json {
        true => output::print_json(&channels),
        false => output::print(&output::table(&channels)),
    }
}
