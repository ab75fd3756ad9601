// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ten seconds of everything at once: many writers and readers, random sizes, signals, kills. Every record is accounted
//! for, in memory that outlives those who are killed.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::unistd::{read, write};

use crate::registry::{Context, topic};
use crate::support::channel::PIPE_BUF;
use crate::support::check::expect;
use crate::support::child::{Child, spawn_keeping};
use crate::support::notice::Notice;
use crate::support::random::Random;
use crate::support::shared::SharedWords;
use crate::support::signals;
use crate::support::time::Deadline;

topic!(
    "stress",
    fifo: [
        every_byte_is_accounted_for_under_signals_and_kills,
    ],
    pipe_only: [],
);

const CROWD: usize = 8;
const SPAN: Duration = Duration::from_secs(10);

/// Writes are one or more records, and whole; so every position where a read ends is the end of a record.
const RECORD: usize = 256;
const RECORDS_PER_WRITE: usize = PIPE_BUF / RECORD;
const RECORDS_PER_READ: usize = 64;

/// Writers over time: each that is killed is followed by one with a new number.
const WRITERS: usize = 1024;
const RECORDS_PER_WRITER: usize = 1 << 23;

/// What all know of each other.
struct Ledger {
    stop: SharedWords,
    /// For each writer, how many records it began to write, and how many of them it knows to be written.
    begun: SharedWords,
    done: SharedWords,
    /// One bit for each record that a reader got.
    got: SharedWords,
}

impl Ledger {
    fn new() -> Result<Self> {
        Ok(Ledger {
            stop: SharedWords::new(1)?,
            begun: SharedWords::new(WRITERS)?,
            done: SharedWords::new(WRITERS)?,
            got: SharedWords::new(WRITERS * RECORDS_PER_WRITER / 64)?,
        })
    }

    fn bit(writer: usize, number: usize) -> usize {
        writer * RECORDS_PER_WRITER + number
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
    ensure!(
        writer < WRITERS && number < RECORDS_PER_WRITER,
        "nobody wrote record {number} of writer {writer}"
    );
    Ok((writer, number))
}

fn write_records(context: &Context, ledger: &Ledger, ready: &Notice, writer: usize) -> Result<()> {
    signals::let_usr1_interrupt()?;
    let fd = context.channel.open_writer()?;
    ready.give()?;
    let mut random = Random::new(writer as u64);
    let mut bytes = [0; PIPE_BUF];
    let mut next = 0;
    while ledger.stop.get(0) == 0 && next + RECORDS_PER_WRITE <= RECORDS_PER_WRITER {
        let count = random.within(1..=RECORDS_PER_WRITE);
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

fn read_records(context: &Context, ledger: &Ledger, ready: &Notice, seed: u64) -> Result<()> {
    signals::let_usr1_interrupt()?;
    let fd = context.channel.open_reader()?;
    ready.give()?;
    let mut random = Random::new(seed);
    let mut bytes = [0; RECORDS_PER_READ * RECORD];
    let mut last = vec![None; WRITERS];
    loop {
        let wanted = random.within(1..=RECORDS_PER_READ) * RECORD;
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
            let begun = ledger.begun.get(writer);
            ensure!(
                (number as u64) < begun,
                "writer {writer} began only {begun} records, but {number} arrived"
            );
            ensure!(
                last[writer] < Some(number),
                "record {number} of writer {writer} came after {:?}",
                last[writer]
            );
            last[writer] = Some(number);
            if ledger.got.mark(Ledger::bit(writer, number)) {
                bail!("record {number} of writer {writer} came twice");
            }
        }
    }
}

/// Those who are alive, and how many there have been.
struct Crowd<'a> {
    context: &'a Context,
    ledger: &'a Ledger,
    ready: &'a Notice,
    writers: Vec<Child<()>>,
    readers: Vec<Child<()>>,
    writers_so_far: usize,
    readers_killed: usize,
}

impl Crowd<'_> {
    fn new_writer(&mut self) -> Result<Child<()>> {
        let number = self.writers_so_far;
        ensure!(number < WRITERS, "more than {WRITERS} writers were needed");
        self.writers_so_far += 1;
        let child = spawn_keeping(&format!("writer {number}"), &self.ready.fds(), || {
            write_records(self.context, self.ledger, self.ready, number)
        })?;
        self.ready.wait("a writer is ready")?;
        Ok(child)
    }

    fn new_reader(&mut self) -> Result<Child<()>> {
        let seed = self.readers_killed as u64;
        let child = spawn_keeping("a reader", &self.ready.fds(), || {
            read_records(self.context, self.ledger, self.ready, seed)
        })?;
        self.ready.wait("a reader is ready")?;
        Ok(child)
    }

    /// A signal to one of them, or the end of one and another in its place.
    fn disturb(&mut self, random: &mut Random) -> Result<()> {
        let victim = random.within(0..=CROWD - 1);
        match random.within(0..=19) {
            0 => {
                self.writers[victim].signal(Signal::SIGKILL)?;
                let successor = self.new_writer()?;
                std::mem::replace(&mut self.writers[victim], successor).wait_end()?;
            }
            1 => {
                self.readers[victim].signal(Signal::SIGKILL)?;
                self.readers_killed += 1;
                let successor = self.new_reader()?;
                std::mem::replace(&mut self.readers[victim], successor).wait_end()?;
            }
            2..=10 => self.writers[victim].signal(Signal::SIGUSR1)?,
            _ => self.readers[victim].signal(Signal::SIGUSR1)?,
        }
        Ok(())
    }
}

fn every_byte_is_accounted_for_under_signals_and_kills(context: &Context) -> Result<()> {
    let ledger = Ledger::new()?;
    let ready = Notice::new()?;
    let mut crowd = Crowd {
        context,
        ledger: &ledger,
        ready: &ready,
        writers: Vec::new(),
        readers: Vec::new(),
        writers_so_far: 0,
        readers_killed: 0,
    };
    // The writer keeps the end of the file away until the end, the reader only until there are others.
    let (reader, writer) = context.channel.open_ends()?;
    for _ in 0..CROWD {
        let (new_reader, new_writer) = (crowd.new_reader()?, crowd.new_writer()?);
        crowd.readers.push(new_reader);
        crowd.writers.push(new_writer);
    }
    drop(reader);

    let mut random = Random::new(12);
    let deadline = Deadline::after(SPAN);
    while !deadline.passed() {
        std::thread::sleep(Duration::from_micros(random.within(0..=2000) as u64));
        crowd.disturb(&mut random)?;
    }
    ledger.stop.set(0, 1);
    crowd.writers.into_iter().try_for_each(Child::finish)?;
    drop(writer);
    crowd.readers.into_iter().try_for_each(Child::finish)?;
    settle_accounts(&ledger, crowd.readers_killed)
}

/// A reader that is killed takes with it what its last read got; nothing else may be missing.
fn settle_accounts(ledger: &Ledger, readers_killed: usize) -> Result<()> {
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
        "only {written} records were written in {SPAN:?}"
    );
    ensure!(
        missing <= allowed,
        "{missing} of {written} records are missing; the {readers_killed} readers that were killed account for {allowed} at most"
    );
    Ok(())
}
