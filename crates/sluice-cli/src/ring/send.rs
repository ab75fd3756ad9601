// SPDX-License-Identifier: MIT OR Apache-2.0
use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;

use anyhow::{Context, Error, Result, anyhow};
use clap::Args;
use sluice::ring::{Options, Producer, SendError};

use super::connect::{Meeting, Role};
use super::cutter::Cutter;
use super::tally::Tally;
use crate::place;
use crate::progress::Progress;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    meeting: Meeting,

    /// How much is on the way at most, up to 256M; a record can take half of it [default: 1M]
    #[arg(long, value_name = "BYTES", value_parser = place::size)]
    capacity: Option<u64>,

    /// Take the ring's memory from the reserve of huge pages of 2 MiB
    #[arg(long)]
    huge_pages: bool,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let input = io::stdin().as_fd().try_clone_to_owned();
    let input = File::from(input.context("there is no standard input; direct a file to it")?);
    let mut options = Options::new().huge_pages(arguments.huge_pages);
    if let Some(capacity) = arguments.capacity {
        options = options.capacity(capacity);
    }
    let meeting = &arguments.meeting;
    let mut producer = meeting.meet(Role::Sender, Options::producer, options)?;
    let progress = match input.is_terminal() {
        true => Progress::hidden(),
        false => Progress::of(length(&input)),
    };
    let mut tally = Tally::begin();
    let mut cutter = Cutter::new(meeting.framing, producer.max_record_len());
    let sent = send_all(&input, &mut cutter, &mut producer, &mut tally, &progress)
        // What is only in the ring is lost when the receiver dies.
        .and_then(|()| producer.flush().map_err(|error| explain(&tally, error)));
    drop(progress);
    match sent {
        Ok(()) if meeting.json => tally.tell(producer.capacity()),
        Ok(()) => Ok(()),
        Err(error) => {
            // To close the ring would tell the receiver that it has everything.
            producer.abort();
            Err(error)
        }
    }
}

fn send_all(
    mut input: &File,
    cutter: &mut Cutter,
    producer: &mut Producer,
    tally: &mut Tally,
    progress: &Progress,
) -> Result<()> {
    loop {
        let before = tally.bytes;
        let more = cutter.fill(&mut input).with_context(|| {
            format!(
                "cannot read standard input after {} records; see what it is, and send anew",
                tally.records
            )
        })?;
        let mut batch = producer.batch();
        let mut send = |record: &[u8]| {
            batch.send(record).map_err(|error| explain(tally, error))?;
            tally.count(record.len());
            Ok::<(), Error>(())
        };
        while let Some(record) = cutter.next()? {
            send(record)?;
        }
        if !more {
            return cutter.last()?.map_or(Ok(()), send);
        }
        batch.publish();
        progress.advance((tally.bytes - before) as usize);
    }
}

/// Of a file, which may be larger or smaller when it has been read.
fn length(input: &File) -> Option<u64> {
    let metadata = input.metadata().ok()?;
    (metadata.is_file() && metadata.len() > 0).then_some(metadata.len())
}

fn explain(tally: &Tally, error: SendError) -> Error {
    let how = match error {
        SendError::Closed => "left",
        SendError::PeerDied => "died, or was ended by a signal,",
        _ => {
            let records = tally.records;
            return Error::new(error).context(format!("sending failed after {records} records"));
        }
    };
    anyhow!(
        "the receiver {how} after {} records had been sent, and may not have written them all; see why, start it again, and send anew",
        tally.records
    )
}
