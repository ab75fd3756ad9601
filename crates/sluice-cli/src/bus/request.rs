// SPDX-License-Identifier: MIT OR Apache-2.0
use std::ffi::OsString;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use sluice::Bus;
use sluice::bus::{Client, Options};

use super::wait;
use crate::args::{self, ChannelArgs};
use crate::{output, stream};

/// A server that is alive but stuck should not hang a script.
const TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    channel: ChannelArgs,

    /// The request [default: all of standard input]
    #[arg(allow_negative_numbers = true)]
    request: Option<OsString>,

    /// Wait up to this time for the bus and a server before sending
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = args::time_or_zero)]
    wait: Option<Duration>,

    /// Fail if there is no reply within this time [default: 5s]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = args::time)]
    timeout: Option<Duration>,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let request = arguments.request()?;
    let bus = arguments.channel.options(Bus::named)?;
    let mut client = wait::open(
        &bus,
        arguments.wait,
        "a server",
        Options::client,
        Client::info,
    )?;
    let timeout = arguments.timeout.unwrap_or(TIMEOUT);
    let reply = client
        .call_timeout(&request, timeout)
        .with_context(|| format!("no reply from '{}'", arguments.channel.name()))?;
    output::print_value(reply.bytes())
}

impl Arguments {
    fn request(&self) -> Result<Vec<u8>> {
        if let Some(request) = &self.request {
            return Ok(request.as_bytes().to_vec());
        }
        let mut request = Vec::new();
        let read = stream::input()?.read_to_end(&mut request);
        read.context("cannot read standard input; fix it and send again")?;
        Ok(request)
    }
}
