// SPDX-License-Identifier: MIT OR Apache-2.0
use anyhow::Result;
use clap::Args;
use sluice::Channel;

use crate::output::{self, Described};
use crate::place::{Named, Shape};

#[derive(Args)]
pub struct Create {
    #[command(flatten)]
    named: Named,

    #[command(flatten)]
    shape: Shape,

    /// Print what was made as a JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub struct Info {
    #[command(flatten)]
    named: Named,

    /// Print a JSON object instead of a table
    #[arg(long)]
    json: bool,
}

pub fn create(arguments: &Create) -> Result<()> {
    let channel = arguments.named.channel()?;
    let options = channel.options().create(true).exclusive(true);
    // A reader is the side whose open need not wait; it is closed at once.
    let options = options.persistent(true).nonblocking(true);
    drop(arguments.shape.apply(options).reader()?);
    match arguments.json {
        true => output::print_json(&describe(&channel)?),
        false => Ok(()),
    }
}

pub fn info(arguments: &Info) -> Result<()> {
    let described = describe(&arguments.named.channel()?)?;
    match arguments.json {
        true => output::print_json(&described),
        false => output::print(&output::table(&[described])),
    }
}

fn describe(channel: &Channel) -> Result<Described> {
    Ok(Described::from(&channel.info()?))
}
