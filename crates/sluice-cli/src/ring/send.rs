// SPDX-License-Identifier: MIT OR Apache-2.0
use std::fs::File;
use std::io::IsTerminal;

use anyhow::{Context, Error, Result, anyhow};
use clap::Args;
use sluice::ring::{Producer, SendError};

use super::codec::Decoder;
use super::setup::{SetupArgs, SideOptions};
use super::side::Role;
use super::stats::Stats;
use crate::args;
use crate::progress::Progress;
use crate::stream;

#[derive(Args)]
#[command(override_usage = "sluice ring send [OPTIONS] <NAME>
       sluice ring send [OPTIONS] --socket <PATH>
       sluice ring send [OPTIONS] --endpoint <FD>")]
pub struct Arguments {
    #[command(flatten)]
    setup: SetupArgs,

    /// Capacity of a new ring, up to {RING_CAPACITY_MAX} [default: {RING_CAPACITY}]
    ///
    /// Rounded up to a power of two, of at least a page. The suffixes K, M and G are units of 1024. A record occupies its length plus 8
    /// bytes, rounded up to a multiple of 8, and at most half of the capacity. Of a NAME, only with --create.
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, requires = "new_memory", value_parser = args::size)]
    capacity: Option<u64>,

    /// Allocate the ring from the pool of 2 MiB huge pages
    ///
    /// The capacity is then at least 2M. Only with --socket.
    #[arg(long, conflicts_with_all = ["channel", "endpoint"])]
    huge_pages: bool,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let input = stream::input()?;
    let side = SideOptions {
        capacity: arguments.capacity,
        huge_pages: arguments.huge_pages,
        ..SideOptions::default()
    };
    let setup = &arguments.setup;
    let place = setup.place(side)?;
    let mut producer: Producer = setup.set_up(&place, side)?;
    let progress = match input.is_terminal() {
        true => Progress::hidden(),
        false => Progress::new(Progress::file_length(&input)),
    };
    let mut stats = Stats::start();
    let mut decoder = Decoder::new(setup.framing, producer.max_record_len());
    let sent = setup.transfer(&place, Role::Sender, || {
        send_all(&input, &mut decoder, &mut producer, &mut stats, &progress)?;
        // Records in the ring are lost if the receiver dies before it has written them.
        producer.flush().map_err(|error| explain(&stats, error))
    });
    drop(progress);
    match sent {
        Ok(()) if setup.summary => stats.print(producer.capacity()),
        Ok(()) => Ok(()),
        Err(error) => {
            // A closed ring would mean a complete transfer to the receiver.
            producer.abort();
            Err(error)
        }
    }
}

fn send_all(
    mut input: &File,
    decoder: &mut Decoder,
    producer: &mut Producer,
    stats: &mut Stats,
    progress: &Progress,
) -> Result<()> {
    loop {
        let before = stats.bytes;
        let more = decoder.fill(&mut input).with_context(|| {
            let records = stats.records;
            format!("cannot read standard input after {records} records; fix it and send again")
        })?;
        let mut batch = producer.send_batch();
        let mut send = |record: &[u8]| {
            batch.send(record).map_err(|error| explain(stats, error))?;
            stats.count(record.len());
            Ok::<(), Error>(())
        };
        while let Some(record) = decoder.next()? {
            send(record)?;
        }
        if !more {
            return decoder.last()?.map_or(Ok(()), send);
        }
        batch.publish();
        progress.advance((stats.bytes - before) as usize);
    }
}

fn explain(stats: &Stats, error: SendError) -> Error {
    let records = stats.records;
    let cause = match error {
        SendError::Closed => "closed the ring",
        SendError::PeerDied => "died",
        SendError::Destroyed => {
            return anyhow!(
                "the ring was destroyed after {records} records, some perhaps unwritten; create it and send again"
            );
        }
        _ => return Error::new(error).context(format!("sending failed after {records} records")),
    };
    anyhow!(
        "the receiver {cause} after {records} records, some perhaps unwritten; restart it and send again"
    )
}
