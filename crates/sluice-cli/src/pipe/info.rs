// SPDX-License-Identifier: MIT OR Apache-2.0
use anyhow::Result;
use sluice::Kind;

use crate::args::InfoArgs;
use crate::channel_row::ChannelRow;
use crate::output;
use crate::table::table;

pub fn run(arguments: &InfoArgs) -> Result<()> {
    let row = ChannelRow::from(&arguments.channel.channel(Kind::Pipe)?.info()?);
    match arguments.json {
        true => output::print_json(&row),
        false => output::print(&table(&[row], arguments.numeric)),
    }
}
