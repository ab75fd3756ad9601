// SPDX-License-Identifier: MIT OR Apache-2.0
//! Each record arrives exactly once and whole. Writes are whole records of up to PIPE_BUF bytes; shared memory, which
//! outlives killed processes, accounts for every record.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use fastrand::Rng;
use nix::errno::Errno;
use nix::unistd::{read, write};

use super::workers::{self, Stop, WorkerId, Workload};
use crate::registry::Context;
use crate::support::channel::{Channel, PIPE_BUF};
use crate::support::check::expect;
use crate::support::event::Event;
use crate::support::shared::SharedWords;
use crate::support::signals;

/// A write is one or more whole records, and atomic, so every read ends at the end of a record.
const RECORD: usize = 256;
const RECORDS_PER_WRITE: usize = PIPE_BUF / RECORD;
const RECORDS_PER_READ: usize = 64;
const RECORDS_PER_WRITER: usize = 1 << 23;

/// Counters shared by all processes.
struct Ledger {
    writers: usize,
    /// For each writer, how many records it began to write, and how many writes of records returned.
    begun: SharedWords,
    done: SharedWords,
    /// One bit for each record that was read.
    got: SharedWords,
}

impl Ledger {
    fn new(writers: usize) -> Result<Self> {
        Ok(Ledger {
            writers,
            begun: SharedWords::new(writers)?,
            done: SharedWords::new(writers)?,
            got: SharedWords::new(writers * RECORDS_PER_WRITER / 64)?,
        })
    }

    fn bit(writer: usize, number: usize) -> usize {
        writer * RECORDS_PER_WRITER + number
    }

    /// Marks a record as read.
    fn enter(&self, writer: usize, number: usize) -> Result<()> {
        ensure!(
            writer < self.writers && number < RECORDS_PER_WRITER,
            "record {number} of writer {writer} was never written"
        );
        let begun = self.begun.get(writer);
        ensure!(
            (number as u64) < begun,
            "writer {writer} began only {begun} records, but {number} arrived"
        );
        if self.got.mark(Ledger::bit(writer, number)) {
            bail!("record {number} of writer {writer} arrived twice");
        }
        Ok(())
    }
}

/// Every word of a record depends on its writer and number.
fn word_of(writer: usize, number: usize) -> u64 {
    (writer as u64) << 32 | number as u64
}

fn put_record(bytes: &mut [u8], writer: usize, number: usize) {
    let word = word_of(writer, number);
    for (index, piece) in bytes.chunks_exact_mut(8).enumerate() {
        piece.copy_from_slice(&word.rotate_left(index as u32).to_le_bytes());
    }
}

fn take_record(bytes: &[u8]) -> Result<(usize, usize)> {
    let mut words = bytes
        .chunks_exact(8)
        .map(|piece| u64::from_le_bytes(piece.try_into().expect("a piece is eight bytes long")));
    let word = words.next().context("a record is empty")?;
    let (writer, number) = ((word >> 32) as usize, (word & 0xffff_ffff) as usize);
    let intact = words
        .zip(1..)
        .all(|(seen, index)| seen == word.rotate_left(index));
    ensure!(
        intact,
        "a record of writer {writer}, number {number}, contains other bytes"
    );
    Ok((writer, number))
}

fn write_records(
    channel: &Channel,
    ledger: &Ledger,
    writer: usize,
    ready: &Event,
    stop: &Stop,
) -> Result<()> {
    ensure!(
        writer < ledger.writers,
        "more than {writer} writers were needed"
    );
    signals::interrupt_on_usr1()?;
    let fd = channel.open_writer()?;
    ready.notify()?;
    let mut random = Rng::with_seed(writer as u64);
    let mut bytes = [0; PIPE_BUF];
    let mut next = 0;
    while !stop.is_set() && next + RECORDS_PER_WRITE <= RECORDS_PER_WRITER {
        let count = random.usize(1..=RECORDS_PER_WRITE);
        for index in 0..count {
            put_record(&mut bytes[index * RECORD..][..RECORD], writer, next + index);
        }
        ledger.begun.set(writer, (next + count) as u64);
        match write(&fd, &bytes[..count * RECORD]) {
            Ok(written) => expect(
                "bytes of a short write that were written",
                written,
                count * RECORD,
            )?,
            Err(Errno::EINTR) => continue,
            Err(error) => return Err(error).context("write"),
        }
        next += count;
        ledger.done.set(writer, next as u64);
    }
    Ok(())
}

fn read_records(channel: &Channel, ledger: &Ledger, seed: usize, ready: &Event) -> Result<()> {
    signals::interrupt_on_usr1()?;
    let fd = channel.open_reader()?;
    ready.notify()?;
    let mut random = Rng::with_seed(seed as u64);
    let mut bytes = [0; RECORDS_PER_READ * RECORD];
    let mut last = vec![None; ledger.writers];
    loop {
        let wanted = random.usize(1..=RECORDS_PER_READ) * RECORD;
        let count = match read(&fd, &mut bytes[..wanted]) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(Errno::EINTR) => continue,
            Err(error) => return Err(error).context("read"),
        };
        expect(
            "bytes of a record that a read got only in part",
            count % RECORD,
            0,
        )?;
        for record in bytes[..count].chunks_exact(RECORD) {
            let (writer, number) = take_record(record)?;
            ledger.enter(writer, number)?;
            ensure!(
                last[writer] < Some(number),
                "record {number} of writer {writer} came after {:?}",
                last[writer]
            );
            last[writer] = Some(number);
        }
    }
}

struct Records<'a> {
    channel: &'a Channel,
    ledger: Ledger,
    readers_killed: usize,
}

impl Workload for Records<'_> {
    fn write(&self, id: WorkerId, ready: &Event, stop: &Stop) -> Result<()> {
        write_records(self.channel, &self.ledger, id.number, ready, stop)
    }

    fn read(&self, id: WorkerId, ready: &Event) -> Result<()> {
        read_records(self.channel, &self.ledger, id.number, ready)
    }

    fn writer_was_killed(&mut self, _: WorkerId) {}

    fn reader_was_killed(&mut self, _: WorkerId) {
        self.readers_killed += 1;
    }
}

/// The byte test runs longer, and checks all that this one does except atomicity.
const LONGEST: Duration = Duration::from_secs(10);

pub fn every_record_is_accounted_for_under_signals_and_kills(context: &Context) -> Result<()> {
    let span = context.durations.stress.min(LONGEST);
    let mut records = Records {
        channel: &context.channel,
        ledger: Ledger::new(workers::workers_within(span))?,
        readers_killed: 0,
    };
    workers::run(context, &mut records, span)?;
    check_ledger(&records.ledger, records.readers_killed, span)
}

/// A killed reader loses the records of its last read; no others may be missing.
fn check_ledger(ledger: &Ledger, readers_killed: usize, span: Duration) -> Result<()> {
    let (mut written, mut missing) = (0, 0);
    for (writer, done) in ledger.done.words().iter().enumerate() {
        let done = done.load(SeqCst) as usize;
        written += done;
        missing += (0..done)
            .filter(|&number| !ledger.got.is_marked(Ledger::bit(writer, number)))
            .count();
    }
    let allowed = readers_killed * RECORDS_PER_READ;
    println!("{written} records written, {missing} missing, {readers_killed} readers killed");
    ensure!(
        written > 1000,
        "only {written} records were written in {span:?}"
    );
    ensure!(
        missing <= allowed,
        "{missing} of {written} records are missing; the {readers_killed} readers that were killed account for {allowed} at most"
    );
    Ok(())
}
