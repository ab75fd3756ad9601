// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records that arrive once each, and each in one piece: writes are whole records of up to PIPE_BUF bytes, and memory
//! that outlives those who are killed knows of every one.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use fastrand::Rng;
use nix::errno::Errno;
use nix::unistd::{read, write};

use super::crowd::{self, Play, Stop, Turn};
use crate::registry::Context;
use crate::support::channel::{Channel, PIPE_BUF};
use crate::support::check::expect;
use crate::support::notice::Notice;
use crate::support::shared::SharedWords;
use crate::support::signals;

/// Writes are one or more records, and whole; so every position where a read ends is the end of a record.
const RECORD: usize = 256;
const RECORDS_PER_WRITE: usize = PIPE_BUF / RECORD;
const RECORDS_PER_READ: usize = 64;
const RECORDS_PER_WRITER: usize = 1 << 23;

/// What all know of each other.
struct Ledger {
    writers: usize,
    /// For each writer, how many records it began to write, and how many of them it knows to be written.
    begun: SharedWords,
    done: SharedWords,
    /// One bit for each record that a reader got.
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

    /// A reader got this record.
    fn enter(&self, writer: usize, number: usize) -> Result<()> {
        ensure!(
            writer < self.writers && number < RECORDS_PER_WRITER,
            "nobody wrote record {number} of writer {writer}"
        );
        let begun = self.begun.get(writer);
        ensure!(
            (number as u64) < begun,
            "writer {writer} began only {begun} records, but {number} arrived"
        );
        if self.got.mark(Ledger::bit(writer, number)) {
            bail!("record {number} of writer {writer} came twice");
        }
        Ok(())
    }
}

/// Every word of a record depends on who wrote it and which one it is.
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
        "a record of writer {writer}, number {number}, has foreign bytes in it"
    );
    Ok((writer, number))
}

fn write_records(
    channel: &Channel,
    ledger: &Ledger,
    writer: usize,
    ready: &Notice,
    stop: &Stop,
) -> Result<()> {
    ensure!(
        writer < ledger.writers,
        "more than {writer} writers were needed"
    );
    signals::let_usr1_interrupt()?;
    let fd = channel.open_writer()?;
    ready.give()?;
    let mut random = Rng::with_seed(writer as u64);
    let mut bytes = [0; PIPE_BUF];
    let mut next = 0;
    while !stop.said() && next + RECORDS_PER_WRITE <= RECORDS_PER_WRITER {
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

fn read_records(channel: &Channel, ledger: &Ledger, seed: usize, ready: &Notice) -> Result<()> {
    signals::let_usr1_interrupt()?;
    let fd = channel.open_reader()?;
    ready.give()?;
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

impl Play for Records<'_> {
    fn write(&self, turn: Turn, ready: &Notice, stop: &Stop) -> Result<()> {
        write_records(self.channel, &self.ledger, turn.number, ready, stop)
    }

    fn read(&self, turn: Turn, ready: &Notice) -> Result<()> {
        read_records(self.channel, &self.ledger, turn.number, ready)
    }

    fn writer_was_killed(&mut self, _: Turn) {}

    fn reader_was_killed(&mut self, _: Turn) {
        self.readers_killed += 1;
    }
}

/// The test of bytes goes on for longer, and sees all that this one does but for whole records.
const LONGEST: Duration = Duration::from_secs(10);

pub fn every_record_is_accounted_for_under_signals_and_kills(context: &Context) -> Result<()> {
    let span = context.lengths.stress.min(LONGEST);
    let mut records = Records {
        channel: &context.channel,
        ledger: Ledger::new(crowd::turns_within(span))?,
        readers_killed: 0,
    };
    crowd::run(context, &mut records, span)?;
    settle_accounts(&records.ledger, records.readers_killed, span)
}

/// A reader that is killed takes with it what its last read got; nothing else may be missing.
fn settle_accounts(ledger: &Ledger, readers_killed: usize, span: Duration) -> Result<()> {
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
