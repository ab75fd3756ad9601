// SPDX-License-Identifier: MIT OR Apache-2.0
//! Accounts for every byte, in writes and reads of any size, with buffers that fault slowly or change.

use std::sync::atomic::Ordering::SeqCst;

use anyhow::{Context as _, Result, ensure};
use fastrand::Rng;
use nix::errno::Errno;

use super::buffers::{MemoryBehavior, Source, Target};
use super::workers::{self, SLOTS, Stop, WorkerId, Workload};
use crate::registry::Context;
use crate::support::channel::Channel;
use crate::support::event::Event;
use crate::support::memory::{read_at, write_at};
use crate::support::numbered_bytes::Piece;
use crate::support::shared::SharedWords;
use crate::support::signals;

/// The maximum size of one write or read.
pub const MOST: usize = 200 << 10;

/// Counters shared by all processes. For each writer's slot, the number of bytes that
struct Ledger {
    /// may have been written, at most;
    begun: SharedWords,
    /// write(2) said were written;
    returned: SharedWords,
    /// were read;
    received: SharedWords,
    /// did not follow their predecessor within one read.
    breaks: SharedWords,
    /// For each reader's slot, the bytes that it may have read without having recorded them.
    asked: SharedWords,
}

impl Ledger {
    fn new() -> Result<Self> {
        Ok(Ledger {
            begun: SharedWords::new(SLOTS)?,
            returned: SharedWords::new(SLOTS)?,
            received: SharedWords::new(SLOTS)?,
            breaks: SharedWords::new(SLOTS)?,
            asked: SharedWords::new(SLOTS)?,
        })
    }

    fn begin(&self, slot: usize, count: usize) {
        self.begun.words()[slot].fetch_add(count as u64, SeqCst);
    }

    /// A writer killed before this call leaves `begun` too large and `returned` too small, which only weakens the
    /// check.
    fn end(&self, slot: usize, count: usize, written: usize) {
        self.returned.words()[slot].fetch_add(written as u64, SeqCst);
        self.begun.words()[slot].fetch_sub((count - written) as u64, SeqCst);
    }

    fn receive(&self, bytes: &[u8]) -> Result<()> {
        let piece = Piece::of(bytes);
        for slot in 0..SLOTS {
            let count = piece.counts[slot];
            let before = self.received.words()[slot].fetch_add(count, SeqCst);
            let begun = self.begun.get(slot);
            ensure!(
                count == 0 || before + count <= begun,
                "{} bytes of writer {slot} arrived, but it began only {begun}",
                before + count
            );
            self.breaks.words()[slot].fetch_add(piece.breaks[slot], SeqCst);
        }
        Ok(())
    }
}

struct Bytes<'a> {
    channel: &'a Channel,
    ledger: Ledger,
    writers_killed: [u64; SLOTS],
    /// An upper bound of the bytes lost in killed readers.
    lost: u64,
}

impl Workload for Bytes<'_> {
    fn write(&self, id: WorkerId, ready: &Event, stop: &Stop) -> Result<()> {
        signals::interrupt_on_usr1()?;
        let source = Source::new(id.slot)?;
        source.while_active(|| write_bytes(self.channel, &self.ledger, &source, id, ready, stop))
    }

    fn read(&self, id: WorkerId, ready: &Event) -> Result<()> {
        signals::interrupt_on_usr1()?;
        read_bytes(self.channel, &self.ledger, id, ready)
    }

    fn writer_was_killed(&mut self, id: WorkerId) {
        self.writers_killed[id.slot] += 1;
    }

    fn reader_was_killed(&mut self, id: WorkerId) {
        self.lost += self.ledger.asked.get(id.slot);
    }
}

fn write_bytes(
    channel: &Channel,
    ledger: &Ledger,
    source: &Source,
    id: WorkerId,
    ready: &Event,
    stop: &Stop,
) -> Result<()> {
    let fd = channel.open_writer()?;
    ready.notify()?;
    let mut random = Rng::with_seed(id.number as u64);
    let mut position = 0;
    while !stop.is_set() {
        let count = random.usize(1..=MOST);
        let start = source.at(position, &mut random)?;
        ledger.begin(id.slot, count);
        let written = match write_at(&fd, start, count) {
            Err(Errno::EINTR) => 0,
            result => result.context("write")?,
        };
        ledger.end(id.slot, count, written);
        position += written;
    }
    Ok(())
}

fn read_bytes(channel: &Channel, ledger: &Ledger, id: WorkerId, ready: &Event) -> Result<()> {
    let target = Target::new(id.slot)?;
    let fd = channel.open_reader()?;
    ready.notify()?;
    let mut random = Rng::with_seed(id.number as u64);
    loop {
        let wanted = random.usize(1..=MOST);
        ledger.asked.set(id.slot, wanted as u64);
        let count = target.fill(
            |start| read_at(&fd, start, wanted),
            |result| match result {
                Err(Errno::EINTR) => Ok(None),
                result => {
                    let bytes = result.context("read")?;
                    ledger.receive(bytes)?;
                    Ok(Some(bytes.len()))
                }
            },
        )?;
        ledger.asked.set(id.slot, 0);
        if count == Some(0) {
            return Ok(());
        }
    }
}

pub fn every_byte_is_accounted_for_at_any_size(context: &Context) -> Result<()> {
    let mut bytes = Bytes {
        channel: &context.channel,
        ledger: Ledger::new()?,
        writers_killed: [0; SLOTS],
        lost: 0,
    };
    workers::run(context, &mut bytes, context.durations.stress)?;
    bytes.check_ledger()
}

impl Bytes<'_> {
    fn check_ledger(&self) -> Result<()> {
        let mut missing = 0;
        for slot in 0..SLOTS {
            missing += self.check_slot(slot)?;
        }
        ensure!(
            missing <= self.lost,
            "{missing} bytes are missing; the readers that were killed account for {} at most",
            self.lost
        );
        Ok(())
    }

    /// The number of missing bytes of this slot.
    fn check_slot(&self, slot: usize) -> Result<u64> {
        let (begun, returned) = (self.ledger.begun.get(slot), self.ledger.returned.get(slot));
        let received = self.ledger.received.get(slot);
        let (breaks, killed) = (self.ledger.breaks.get(slot), self.writers_killed[slot]);
        println!(
            "writer {slot}: {begun} bytes begun, {returned} written, {received} received, {breaks} breaks, {killed} killed"
        );
        ensure!(received > 0, "no bytes of writer {slot} arrived");
        ensure!(
            received <= begun,
            "{received} bytes of writer {slot} arrived, but it began only {begun}"
        );
        // The successor of a killed writer does not know where in the sequence that one stopped.
        ensure!(
            MemoryBehavior::of(slot) == MemoryBehavior::Changing || breaks <= killed,
            "the bytes of writer {slot} are out of sequence {breaks} times; it was killed {killed} times"
        );
        Ok(returned.saturating_sub(received))
    }
}
