// SPDX-License-Identifier: MIT OR Apache-2.0
use anyhow::Result;
use clap::Args;

use crate::args::{ChannelArgs, NewChannelArgs};
use crate::channel_row::ChannelRow;
use crate::output;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    channel: ChannelArgs,

    #[command(flatten)]
    new: NewChannelArgs,

    /// Print the new pipe as a JSON object
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let channel = arguments.channel.pipe()?;
    let options = channel.options().create(true).exclusive(true);
    let NewChannelArgs { permissions, size } = arguments.new;
    let options = options.mode(permissions).capacity(size.unwrap_or(0));
    // A nonblocking open for reading succeeds without the other side.
    drop(options.persistent(true).nonblocking(true).reader()?);
    match arguments.json {
        true => output::print_json(&ChannelRow::from(&channel.info()?)),
        false => Ok(()),
    }
}
