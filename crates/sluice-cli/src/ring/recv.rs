// SPDX-License-Identifier: MIT OR Apache-2.0
use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal};
use std::os::fd::AsFd;

use anyhow::{Context, Error, Result, anyhow};
use clap::Args;
use sluice::ring::{Consumer, Options, ReadBatch, RecvError};

use super::connect::{Meeting, Role};
use super::framing::Framing;
use super::sheet::Sheet;
use super::tally::Tally;
use crate::place;
use crate::progress::Progress;

/// What is written at once, if so much is there.
const PIECE: usize = 128 << 10;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    meeting: Meeting,

    /// Turn a sender away whose ring has more bytes than this [default: 256M, the largest there is]
    #[arg(long, value_name = "BYTES", value_parser = place::size)]
    max_capacity: Option<u64>,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let output = io::stdout().as_fd().try_clone_to_owned();
    let output = output.context("there is no standard output; direct it to a file")?;
    let output = File::from(output);
    let meeting = &arguments.meeting;
    let mut options = Options::new();
    if let Some(bytes) = arguments.max_capacity {
        options = options.max_capacity(bytes);
    }
    let mut consumer = meeting.meet(Role::Receiver, Options::consumer, options)?;
    let progress = match output.is_terminal() {
        true => Progress::hidden(),
        false => Progress::of(None),
    };
    let mut tally = Tally::begin();
    receive_all(
        &output,
        meeting.framing,
        &mut consumer,
        &mut tally,
        &progress,
    )?;
    drop(progress);
    match meeting.json {
        true => tally.tell(consumer.capacity()),
        false => Ok(()),
    }
}

fn receive_all(
    mut output: &File,
    framing: Framing,
    consumer: &mut Consumer,
    tally: &mut Tally,
    progress: &Progress,
) -> Result<()> {
    // So that the sender has room while this is written.
    let most = PIECE.min(consumer.max_record_len() / 2);
    let mut sheet = Sheet::default();
    loop {
        let before = tally.bytes;
        let batch = consumer.batch().map_err(|error| explain(tally, error))?;
        let Some(mut batch) = batch else {
            return Ok(());
        };
        let collected = collect(&mut batch, framing, most, &mut sheet, tally);
        let written = sheet.write(&mut output);
        written.map_err(|error| explain_output(tally, error))?;
        // What was released counts as delivered for the sender, hence not before it was written.
        drop(batch);
        collected.map_err(|error| explain(tally, error))?;
        progress.advance((tally.bytes - before) as usize);
    }
}

fn collect(
    batch: &mut ReadBatch,
    framing: Framing,
    most: usize,
    sheet: &mut Sheet,
    tally: &mut Tally,
) -> Result<(), RecvError> {
    while sheet.used() < most {
        let Some(record) = batch.take()? else {
            break;
        };
        sheet.put(framing, &record);
        tally.count(record.len());
    }
    Ok(())
}

fn explain(tally: &Tally, error: RecvError) -> Error {
    let records = tally.records;
    match error {
        RecvError::PeerDied => anyhow!(
            "the sender failed, died, or was ended by a signal after {records} records, which were written; see why, and send anew"
        ),
        _ => Error::new(error).context(format!(
            "receiving failed after {records} records, which were written"
        )),
    }
}

fn explain_output(tally: &Tally, error: io::Error) -> Error {
    let records = tally.records;
    match error.kind() {
        ErrorKind::BrokenPipe => anyhow!(
            "whoever read standard output left after up to {records} records; what was received and not written is lost, send anew"
        ),
        _ => Error::new(error).context(format!(
            "cannot write to standard output after up to {records} records; see that there is room for them, and send anew"
        )),
    }
}
