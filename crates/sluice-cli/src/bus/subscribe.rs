// SPDX-License-Identifier: MIT OR Apache-2.0
use std::fs::File;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Error, Result, anyhow};
use clap::Args;
use sluice::bus::{BusInfo, Message, Options, Policy, RecvError, Subscriber};

use super::args::{OpenBusArgs, PolicyName};
use super::output::push;
use super::summary::Stats;
use crate::args::{self, With};
use crate::output;
use crate::ring::codec::{Format, Framing};
use crate::signals::FinalReport;
use crate::stream;
use crate::wait_notice::{elsewhere, with_wait_notice_if};

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    bus: OpenBusArgs,

    /// What happens when this subscriber does not keep up [default: the first of them that the bus permits]
    ///
    /// A unicast bus has no policies.
    #[arg(long, value_name = "POLICY")]
    policy: Option<PolicyName>,

    /// Unread bytes above which this subscriber of a multicast bus is full [default: half the capacity]
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, value_parser = args::size)]
    limit: Option<u64>,

    /// Receive all messages, also those for others, without delaying a sender; needs CAP_SYS_ADMIN
    ///
    /// The capability is that of the initial user namespace. Not with --policy.
    #[arg(long, conflicts_with = "policy")]
    monitor: bool,

    /// Exit after this number of messages [default: never]
    #[arg(long, value_name = "N", value_parser = args::number(1u64..))]
    count: Option<u64>,

    /// Fail if there is no message for this time
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = args::time)]
    timeout: Option<Duration>,

    /// Framing of the messages in standard output
    #[arg(long, value_name = "FRAMING", default_value = "lines")]
    framing: Framing,

    /// Print the bytes of the messages without framing
    #[arg(long, conflicts_with = "framing")]
    raw: bool,

    /// Print each message as a JSON object in a line, with sequence, sender, losses and credentials
    #[arg(long, conflicts_with_all = ["framing", "raw"])]
    json: bool,

    /// Print a JSON summary to standard error at the end
    #[arg(long)]
    summary: bool,
}

/// What was received and not written yet, and the counts of all.
struct Received {
    format: Format,
    buffer: Vec<u8>,
    stats: Arc<Stats>,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let output = stream::output()?;
    let mut subscriber = arguments.open()?;
    let stats = Arc::new(Stats::start());
    let (id, in_full, reported) = (subscriber.id(), arguments.summary, Arc::clone(&stats));
    let summary = FinalReport::new(move || report(&reported, id, in_full))?;
    let counted = Arc::clone(&stats);
    stream::end_with_reader(&output, Arc::clone(&summary), move |error| {
        stream::explain_output(counted.messages(), "messages", error)
    })?;
    let mut received = Received {
        format: match (arguments.json, arguments.raw) {
            (true, _) => Format::Json,
            (_, true) => Format::Raw,
            _ => Format::Framed(arguments.framing),
        },
        buffer: Vec::new(),
        stats,
    };
    let outcome =
        arguments.with_notice(|| received.receive_all(&mut subscriber, arguments, &output))?;
    summary.print()?;
    outcome
}

fn report(stats: &Stats, id: u64, in_full: bool) -> Result<()> {
    if in_full {
        return stats.print(id);
    }
    let lost = stats.lost();
    if lost > 0 {
        output::note(&format!(
            "sluice: {lost} messages were lost, because this process was too slow"
        ));
    }
    Ok(())
}

impl Arguments {
    fn open(&self) -> Result<Subscriber> {
        let bus = self.bus.options()?.monitor(self.monitor);
        let bus = bus.with(self.policy.map(Policy::from), Options::policy);
        Ok(bus.with(self.limit, Options::limit).subscriber()?)
    }

    /// Receives. Prints a notice if the bus never had a sender. With a timeout the error says so; with a summary, standard error is for that.
    fn with_notice<T>(&self, receive: impl FnOnce() -> T) -> Result<T> {
        let bus = self.bus.options()?;
        let channel = bus.channel()?;
        let (name, scope) = (channel.name(), channel.scope());
        let awaited = format!("a sender of '{name}' in {scope}; run 'sluice bus pub {name}' there");
        let is_unused = |info: BusInfo| info.senders == 0 && info.sent == 0;
        Ok(with_wait_notice_if(
            || !self.summary && self.timeout.is_none() && bus.info().is_ok_and(is_unused),
            &elsewhere(&awaited),
            receive,
        ))
    }
}

impl Received {
    fn receive_all(
        &mut self,
        subscriber: &mut Subscriber,
        arguments: &Arguments,
        mut output: &File,
    ) -> Result<()> {
        let limit = arguments.count.unwrap_or(u64::MAX);
        let timeout = arguments.timeout.unwrap_or(Duration::MAX);
        while self.stats.messages() < limit {
            let received = match (arguments.count, arguments.timeout) {
                // A batch could have more messages than requested, which others would miss.
                (Some(_), None) => self.push(subscriber.recv()),
                (Some(_), Some(_)) => self.push(subscriber.recv_timeout(timeout)),
                (None, None) => self.push_all(subscriber.recv_batch()),
                (None, Some(_)) => self.push_all(subscriber.recv_batch_timeout(timeout)),
            };
            received.map_err(|error| self.explain(error))?;
            let written = output.write_all(&self.buffer);
            written.map_err(|error| {
                stream::explain_output(self.stats.messages(), "messages", error)
            })?;
            self.buffer.clear();
        }
        Ok(())
    }

    fn push(&mut self, message: Result<Message, RecvError>) -> Result<(), RecvError> {
        let message = message?;
        push(&mut self.buffer, self.format, &message);
        self.stats.count(message.len);
        self.stats.count_lost(message.lost);
        Ok(())
    }

    fn push_all<'a>(
        &mut self,
        batch: Result<impl Iterator<Item = Message<'a>>, RecvError>,
    ) -> Result<(), RecvError> {
        batch?.try_for_each(|message| self.push(Ok(message)))
    }

    fn explain(&self, error: RecvError) -> Error {
        let messages = self.stats.messages();
        match error {
            RecvError::Destroyed => anyhow!("the bus was destroyed after {messages} messages"),
            _ => Error::new(error).context(format!("receiving ended after {messages} messages")),
        }
    }
}
