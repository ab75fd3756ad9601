// SPDX-License-Identifier: MIT OR Apache-2.0
use std::ffi::OsString;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use anyhow::{Context, Error, Result};
use clap::Args;
use sluice::bus::{Options, SendBatch, SendError, Sender};

use super::args::OpenBusArgs;
use super::summary::Stats;
use super::wait;
use crate::args;
use crate::ring::codec::{Decoder, Framing};
use crate::stream;

/// The most messages that one call sends. Their bytes are in a buffer that was read at once.
const BATCH: usize = 256;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    bus: OpenBusArgs,

    /// The message [default: each line of standard input is one]
    #[arg(allow_negative_numbers = true, conflicts_with_all = ["framing", "raw", "count"])]
    message: Option<OsString>,

    /// Send to the subscriber with this id only
    ///
    /// Not on a unicast bus, nor on one with --mappable. The options --subscribers of bus info and --json of bus sub show ids.
    #[arg(long, value_name = "ID", value_parser = args::number(1u64..))]
    to: Option<u64>,

    /// Wait up to this time for the bus and a subscriber before sending
    ///
    /// Only for the bus if it is a unicast bus, which keeps messages.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = args::time_or_zero)]
    wait: Option<Duration>,

    /// Exit after this number of messages [default: at the end of the input]
    #[arg(long, value_name = "N", value_parser = args::number(1u64..))]
    count: Option<u64>,

    /// Framing of the messages in standard input
    #[arg(long, value_name = "FRAMING", default_value = "lines")]
    framing: Framing,

    /// Send all of standard input as one message
    #[arg(long, conflicts_with_all = ["framing", "count"])]
    raw: bool,

    /// Print a JSON summary to standard error at the end
    #[arg(long)]
    summary: bool,
}

enum Input<'a> {
    Message(&'a [u8]),
    Stream(File),
}

/// A sender, and where it sends to.
struct Target<'a> {
    sender: &'a Sender,
    id: Option<u64>,
    limit: u64,
    stats: Stats,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let input = match &arguments.message {
        Some(message) => Input::Message(message.as_bytes()),
        None => Input::Stream(stream::input()?),
    };
    let sender = arguments.open()?;
    let mut target = Target {
        sender: &sender,
        id: arguments.to,
        limit: arguments.count.unwrap_or(u64::MAX),
        stats: Stats::start(),
    };
    match input {
        Input::Message(message) => target.send(message)?,
        Input::Stream(input) if arguments.raw => target.send_whole(&input)?,
        Input::Stream(input) => target.send_all(&input, arguments.framing)?,
    }
    match arguments.summary {
        true => target.stats.print(sender.id()),
        false => Ok(()),
    }
}

impl Arguments {
    fn open(&self) -> Result<Sender> {
        let bus = self.bus.options()?;
        wait::open(
            &bus,
            self.wait,
            "a subscriber",
            Options::sender,
            Sender::info,
        )
    }
}

impl Target<'_> {
    fn send_whole(&mut self, mut input: &File) -> Result<()> {
        let mut message = Vec::new();
        let read = input.read_to_end(&mut message);
        read.context("cannot read standard input; fix it and send again")?;
        self.send(&message)
    }

    fn send_all(&mut self, mut input: &File, framing: Framing) -> Result<()> {
        let max = usize::try_from(self.sender.message_max()).unwrap_or(usize::MAX);
        let mut decoder = Decoder::new(framing, max);
        loop {
            let more = decoder.fill(&mut input).with_context(|| {
                let messages = self.stats.messages();
                format!(
                    "cannot read standard input after {messages} messages; fix it and send again"
                )
            })?;
            while self.stats.messages() < self.limit && self.send_next(&mut decoder)? {}
            if self.stats.messages() == self.limit {
                return Ok(());
            }
            if !more {
                return decoder.last()?.map_or(Ok(()), |message| self.send(message));
            }
        }
    }

    /// Sends the messages that were read, up to `BATCH`. False if there was none.
    fn send_next(&mut self, decoder: &mut Decoder) -> Result<bool> {
        let left = self.limit - self.stats.messages();
        let most = usize::try_from(left).unwrap_or(BATCH).min(BATCH);
        let mut batch = self.sender.batch();
        let mut lengths = Vec::new();
        let mut failure = None;
        while lengths.len() < most {
            match decoder.next() {
                Ok(Some(message)) => {
                    self.add(&mut batch, message)
                        .map_err(|error| self.failed(error))?;
                    lengths.push(message.len());
                }
                Ok(None) => break,
                // Those before it are sent first.
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        let sent = self.sender.send_batch(&mut batch);
        let unsent = batch.len();
        for length in &lengths[..lengths.len() - unsent] {
            self.stats.count(*length);
        }
        sent.map_err(|error| self.failed(error))?;
        match failure {
            Some(error) => Err(error),
            None => Ok(!lengths.is_empty()),
        }
    }

    fn add(&self, batch: &mut SendBatch, message: &[u8]) -> Result<(), SendError> {
        match self.id {
            Some(id) => batch.push_to(id, message),
            None => batch.push(message),
        }
    }

    fn send(&mut self, message: &[u8]) -> Result<()> {
        let sent = match self.id {
            Some(id) => self.sender.send_to(id, message),
            None => self.sender.send(message),
        };
        sent.map_err(|error| self.failed(error))?;
        self.stats.count(message.len());
        Ok(())
    }

    fn failed(&self, error: SendError) -> Error {
        let messages = self.stats.messages();
        Error::new(error).context(format!("sending failed after {messages} messages"))
    }
}
