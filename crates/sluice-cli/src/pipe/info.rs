// SPDX-License-Identifier: MIT OR Apache-2.0
use anyhow::Result;
use clap::Args;

use crate::args::ChannelArgs;
use crate::channel_row::{self, ChannelRow};
use crate::output;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    channel: ChannelArgs,

    /// Print user and group IDs instead of names
    #[arg(short, long)]
    numeric: bool,

    /// Print a JSON object instead of a table
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let row = ChannelRow::from(&arguments.channel.channel()?.info()?);
    match arguments.json {
        true => output::print_json(&row),
        false => output::print(&channel_row::table(&[row], arguments.numeric)),
    }
}
