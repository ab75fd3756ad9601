// SPDX-License-Identifier: MIT OR Apache-2.0
use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal};

use anyhow::{Error, Result, anyhow};
use clap::Args;
use sluice::ring::{Consumer, ReadBatch, RecvError};

use super::codec::Format;
use super::output::OutputBuffer;
use super::setup::{SetupArgs, SideOptions};
use super::side::Role;
use super::stats::Stats;
use crate::args;
use crate::progress::Progress;
use crate::stream;

/// The number of bytes after which a write starts.
const CHUNK: usize = 128 << 10;

#[derive(Args)]
#[command(override_usage = "sluice ring recv [OPTIONS] <NAME>
       sluice ring recv [OPTIONS] --socket <PATH>
       sluice ring recv [OPTIONS] --endpoint <FD>")]
pub struct Arguments {
    #[command(flatten)]
    setup: SetupArgs,

    /// Capacity of a new ring, up to {RING_CAPACITY_MAX} [default: {RING_CAPACITY}]
    ///
    /// Rounded up to a power of two, of at least a page. The suffixes K, M and G are units of 1024. A record occupies its length plus 8
    /// bytes, rounded up to a multiple of 8, and at most half of the capacity. Of a NAME, only with --create.
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, requires = "create", conflicts_with = "socket", value_parser = args::size)]
    capacity: Option<u64>,

    /// Reject a ring that is larger than this [default: {RING_CAPACITY_MAX}, the limit]
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, value_parser = args::size)]
    max_capacity: Option<u64>,

    /// Print each record as a JSON object in a line
    #[arg(long, conflicts_with = "framing")]
    json: bool,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let output = stream::output()?;
    let setup = &arguments.setup;
    let side = SideOptions {
        capacity: arguments.capacity,
        max_capacity: arguments.max_capacity,
        ..SideOptions::default()
    };
    let place = setup.place(side)?;
    let mut consumer: Consumer = setup.set_up(&place, side)?;
    let progress = match output.is_terminal() {
        true => Progress::hidden(),
        false => Progress::new(None),
    };
    let mut stats = Stats::start();
    let format = match arguments.json {
        true => Format::Json,
        false => Format::Framed(setup.framing),
    };
    setup.transfer(&place, Role::Receiver, || {
        receive_all(&output, format, &mut consumer, &mut stats, &progress)
    })?;
    drop(progress);
    match setup.summary {
        true => stats.print(consumer.capacity()),
        false => Ok(()),
    }
}

fn receive_all(
    mut output: &File,
    format: Format,
    consumer: &mut Consumer,
    stats: &mut Stats,
    progress: &Progress,
) -> Result<()> {
    // At most a part of the ring, so that the sender can continue during the write.
    let limit = CHUNK.min(consumer.max_record_len() / 2);
    let mut buffer = OutputBuffer::default();
    loop {
        let before = stats.bytes;
        let batch = consumer
            .recv_batch()
            .map_err(|error| explain(stats, error))?;
        let Some(mut batch) = batch else {
            return Ok(());
        };
        let collected = collect(&mut batch, format, limit, &mut buffer, stats);
        // Released only after the write: for the sender, a released record is delivered.
        if let Err(error) = buffer.write_to(&mut output) {
            batch.rewind();
            return Err(explain_output(stats, error));
        }
        drop(batch);
        collected.map_err(|error| explain(stats, error))?;
        progress.advance((stats.bytes - before) as usize);
    }
}

fn collect(
    batch: &mut ReadBatch,
    format: Format,
    limit: usize,
    buffer: &mut OutputBuffer,
    stats: &mut Stats,
) -> Result<(), RecvError> {
    while buffer.len() < limit {
        let Some(record) = batch.recv()? else {
            break;
        };
        buffer.push(format, &record);
        stats.count(record.len());
    }
    Ok(())
}

fn explain(stats: &Stats, error: RecvError) -> Error {
    let records = stats.records;
    match error {
        RecvError::PeerDied => anyhow!(
            "the sender failed or died after {records} records, which were written; check its error and send again"
        ),
        RecvError::Destroyed => anyhow!(
            "the ring was destroyed after {records} records, which were written; create it and send again"
        ),
        _ => Error::new(error).context(format!(
            "receiving failed after {records} records, which were written"
        )),
    }
}

fn explain_output(stats: &Stats, error: io::Error) -> Error {
    let records = stats.records;
    match error.kind() {
        ErrorKind::BrokenPipe => anyhow!(
            "the reader of standard output closed it after up to {records} records; send again"
        ),
        _ => Error::new(error).context(format!(
            "cannot write to standard output after up to {records} records; check the free space, and send again"
        )),
    }
}
