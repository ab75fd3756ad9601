// SPDX-License-Identifier: MIT OR Apache-2.0
use anyhow::Result;
use clap::Args;
use sluice::Kind;

use crate::args::ChannelArgs;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    pub channel: ChannelArgs,

    /// End the channel for the processes that have it open, too
    ///
    /// Their calls then fail. Unread bytes of a pipe are discarded; the receiver of a ring first gets the records that were sent.
    #[arg(long)]
    destroy: bool,
}

/// Removes the channel of this kind.
pub fn run(arguments: &Arguments, kind: Kind) -> Result<()> {
    let channel = arguments.channel.channel(kind)?;
    match arguments.destroy {
        true => channel.destroy()?,
        false => channel.unlink()?,
    }
    Ok(())
}
