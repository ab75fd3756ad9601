// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes of up to PIPE_BUF bytes are atomic with any number of concurrent readers and writers.

use std::io::IoSlice;
use std::os::fd::OwnedFd;

use anyhow::{Context as _, Result, ensure};
use fastrand::Rng;
use nix::sys::uio::writev;
use nix::unistd::write;

use crate::registry::{Context, topic};
use crate::support::channel::{PIPE_BUF, read_some};
use crate::support::check::expect;
use crate::support::child::{Child, spawn};
use crate::support::proc::Call;
use crate::support::random::{stream_byte, stream_bytes};

topic!(
    "atomicity",
    fifo: [
        records_of_many_writers_arrive_whole,
        writev_records_of_many_writers_arrive_whole,
        records_of_pipe_buf_bytes_arrive_whole,
        many_readers_of_whole_records_get_whole_records,
    ],
    pipe_only: [],
);

const WRITERS: usize = 6;
const RECORDS: usize = 250;

/// Length, writer and number; the rest of a record is taken from the writer's stream at the offset that the number
/// gives.
const HEADER: usize = 6;

fn record(writer: usize, number: usize, len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len);
    bytes.extend((len as u16).to_le_bytes());
    bytes.extend((writer as u16).to_le_bytes());
    bytes.extend((number as u16).to_le_bytes());
    bytes.extend(stream_bytes(writer as u64, number as u64, len - HEADER));
    bytes
}

fn field(bytes: &[u8], index: usize) -> usize {
    usize::from(u16::from_le_bytes([bytes[2 * index], bytes[2 * index + 1]]))
}

/// Checks received bytes record by record.
#[derive(Default)]
struct Checker {
    pending: Vec<u8>,
    next: [usize; WRITERS],
}

impl Checker {
    fn take(&mut self, bytes: &[u8]) -> Result<()> {
        self.pending.extend(bytes);
        let mut at = 0;
        while self.pending.len() - at >= HEADER {
            let len = field(&self.pending[at..], 0);
            ensure!(
                (HEADER..=PIPE_BUF).contains(&len),
                "a record has length {len}: the one before it was interleaved with another write"
            );
            if self.pending.len() - at < len {
                break;
            }
            let (writer, number) = check_record(&self.pending[at..at + len])?;
            let what = format!("number of the next record of writer {writer}");
            expect(&what, number, self.next[writer])?;
            self.next[writer] += 1;
            at += len;
        }
        self.pending.drain(..at);
        Ok(())
    }

    fn finish(self) -> Result<()> {
        expect(
            "bytes of an unfinished record at the end",
            self.pending.len(),
            0,
        )?;
        expect("records of each writer", self.next, [RECORDS; WRITERS])
    }
}

/// The writer and number of a record; fails unless the content is what that writer wrote.
fn check_record(record: &[u8]) -> Result<(usize, usize)> {
    let (writer, number) = (field(record, 1), field(record, 2));
    ensure!(writer < WRITERS, "a record has writer {writer}");
    let intact = (HEADER..record.len())
        .all(|at| record[at] == stream_byte(writer as u64, (number + at - HEADER) as u64));
    ensure!(
        intact,
        "record {number} of writer {writer} contains other bytes"
    );
    Ok((writer, number))
}

/// Each writer writes records of sizes given by `size`, one call per record.
fn writers(
    context: &Context,
    size: impl Fn(&mut Rng) -> usize,
    put: fn(&OwnedFd, &[u8]) -> nix::Result<usize>,
) -> Result<Vec<Child<()>>> {
    (0..WRITERS)
        .map(|writer| {
            spawn(&format!("writer {writer}"), || {
                let fd = context.channel.open_writer()?;
                let mut random = Rng::with_seed(writer as u64);
                for number in 0..RECORDS {
                    let bytes = record(writer, number, size(&mut random));
                    let written = put(&fd, &bytes).context("writing a record")?;
                    expect("bytes written of a record", written, bytes.len())?;
                }
                Ok(())
            })
        })
        .collect()
}

fn put_at_once(fd: &OwnedFd, bytes: &[u8]) -> nix::Result<usize> {
    write(fd, bytes)
}

fn put_gathered(fd: &OwnedFd, bytes: &[u8]) -> nix::Result<usize> {
    let (header, content) = bytes.split_at(HEADER);
    let (left, right) = content.split_at(content.len() / 3);
    writev(
        fd,
        &[
            IoSlice::new(header),
            IoSlice::new(left),
            IoSlice::new(right),
        ],
    )
}

/// Reads in random amounts until the writers, which all start at once, have finished.
fn expect_whole_records(context: &Context, writers: Vec<Child<()>>) -> Result<()> {
    for writer in &writers {
        writer.wait_asleep_in(Call::Open)?;
    }
    let reader = context.channel.open_reader()?;
    let mut checker = Checker::default();
    let mut random = Rng::with_seed(99);
    loop {
        let bytes = read_some(&reader, random.usize(1..=3 * PIPE_BUF)).context("read")?;
        if bytes.is_empty() {
            break;
        }
        checker.take(&bytes)?;
    }
    writers.into_iter().try_for_each(Child::finish)?;
    checker.finish()
}

fn any_size(random: &mut Rng) -> usize {
    random.usize(HEADER..=PIPE_BUF)
}

fn records_of_many_writers_arrive_whole(context: &Context) -> Result<()> {
    expect_whole_records(context, writers(context, any_size, put_at_once)?)
}

fn writev_records_of_many_writers_arrive_whole(context: &Context) -> Result<()> {
    expect_whole_records(context, writers(context, any_size, put_gathered)?)
}

fn records_of_pipe_buf_bytes_arrive_whole(context: &Context) -> Result<()> {
    expect_whole_records(context, writers(context, |_| PIPE_BUF, put_at_once)?)
}

const READERS: usize = 4;

/// Reads records of one size; returns the writer and number of each.
fn read_records(context: &Context, size: usize) -> Result<Vec<(usize, usize)>> {
    let fd = context.channel.open_reader()?;
    let mut seen = Vec::new();
    loop {
        let bytes = read_some(&fd, size).context("read")?;
        if bytes.is_empty() {
            return Ok(seen);
        }
        expect("bytes read of a record", bytes.len(), size)?;
        seen.push(check_record(&bytes)?);
    }
}

/// Linux guarantees it, POSIX does not: reads are atomic too. If all records have one size, each read of that size
/// returns one record.
fn many_readers_of_whole_records_get_whole_records(context: &Context) -> Result<()> {
    for size in [HEADER, 1000, 3000, PIPE_BUF] {
        let readers = (0..READERS)
            .map(|index| spawn(&format!("reader {index}"), || read_records(context, size)))
            .collect::<Result<Vec<_>>>()?;
        for reader in &readers {
            reader.wait_asleep_in(Call::Open)?;
        }
        // Prevents EOF until all writers have finished.
        let last = context.channel.open_writer()?;
        writers(context, |_| size, put_at_once)?
            .into_iter()
            .try_for_each(Child::finish)?;
        drop(last);
        let seen = readers
            .into_iter()
            .map(Child::finish)
            .collect::<Result<Vec<_>>>()?;
        expect_each_once_and_in_order(&seen).with_context(|| format!("records of {size} bytes"))?;
    }
    Ok(())
}

fn expect_each_once_and_in_order(seen: &[Vec<(usize, usize)>]) -> Result<()> {
    for writer in 0..WRITERS {
        let mut numbers = Vec::new();
        for (index, records) in seen.iter().enumerate() {
            let own: Vec<usize> = records
                .iter()
                .filter(|r| r.0 == writer)
                .map(|r| r.1)
                .collect();
            ensure!(
                own.is_sorted(),
                "reader {index} got records of writer {writer} out of order: {own:?}"
            );
            numbers.extend(own);
        }
        numbers.sort_unstable();
        let all = numbers.iter().copied().eq(0..RECORDS);
        ensure!(
            all,
            "of the {RECORDS} records of writer {writer} only these arrived: {numbers:?}"
        );
    }
    Ok(())
}
