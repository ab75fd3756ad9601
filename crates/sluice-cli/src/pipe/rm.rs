// SPDX-License-Identifier: MIT OR Apache-2.0
use anyhow::Result;
use clap::Args;

use crate::args::ChannelArgs;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    channel: ChannelArgs,

    /// End the pipe for the processes that have it open, too; unread bytes are discarded
    #[arg(long)]
    destroy: bool,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let channel = arguments.channel.channel()?;
    match arguments.destroy {
        true => channel.destroy()?,
        false => channel.unlink()?,
    }
    Ok(())
}
