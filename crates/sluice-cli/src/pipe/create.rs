// SPDX-License-Identifier: MIT OR Apache-2.0
use anyhow::Result;
use clap::Args;
use sluice::{Options, Pipe};

use crate::args::{self, ChannelArgs, NewChannelArgs, With};
use crate::channel_row::ChannelRow;
use crate::output;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    channel: ChannelArgs,

    #[command(flatten)]
    new: NewChannelArgs,

    /// Capacity of a new pipe, such as 65536, 64K or 1M [default: {PIPE_CAPACITY}]
    ///
    /// Rounded up to a power of two of pages. The suffixes K, M and G are units of 1024.
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, value_parser = args::size)]
    capacity: Option<u64>,

    /// Print the new pipe as a JSON object
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let pipe = arguments.channel.options(Pipe::named)?;
    let pipe = arguments.new.apply(pipe);
    let pipe = pipe.with(arguments.capacity, Options::capacity);
    pipe.create_persistent()?;
    match arguments.json {
        true => output::print_json(&ChannelRow::from(&pipe.info()?)),
        false => Ok(()),
    }
}
