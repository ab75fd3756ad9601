// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bytes that are each accounted for, in writes and reads of any size, from and to memory that comes late or changes.

use std::sync::atomic::Ordering::SeqCst;

use anyhow::{Context as _, Result, ensure};
use fastrand::Rng;
use nix::errno::Errno;

use super::buffers::{Manner, Source, Target};
use super::crowd::{self, Play, SEATS, Stop, Turn};
use crate::registry::Context;
use crate::support::channel::Channel;
use crate::support::memory::{read_at, write_at};
use crate::support::notice::Notice;
use crate::support::shared::SharedWords;
use crate::support::signals;

/// The most bytes of one write or read.
pub const MOST: usize = 200 << 10;

/// A byte that tells its writer's seat, and its place in what that writer writes, as far as there is room for that.
#[derive(Clone, Copy)]
pub struct Byte(pub u8);

impl Byte {
    /// Places look the same after so many.
    pub const PERIOD: usize = 32;

    pub fn new(seat: usize, place: usize) -> Self {
        Byte((seat * Self::PERIOD + place % Self::PERIOD) as u8)
    }

    fn seat(self) -> usize {
        self.0 as usize / Self::PERIOD
    }

    fn place(self) -> usize {
        self.0 as usize % Self::PERIOD
    }
}

/// What all know of each other: for each writer's seat, how many bytes
struct Ledger {
    /// may be in the pipe or have been there, at most;
    begun: SharedWords,
    /// write(2) said were written;
    returned: SharedWords,
    /// came out;
    received: SharedWords,
    /// did not follow, within one read, on the one before them.
    breaks: SharedWords,
    /// For each reader's seat, how many bytes it may have taken without having said so.
    asked: SharedWords,
}

impl Ledger {
    fn new() -> Result<Self> {
        Ok(Ledger {
            begun: SharedWords::new(SEATS)?,
            returned: SharedWords::new(SEATS)?,
            received: SharedWords::new(SEATS)?,
            breaks: SharedWords::new(SEATS)?,
            asked: SharedWords::new(SEATS)?,
        })
    }

    fn begin(&self, seat: usize, count: usize) {
        self.begun.words()[seat].fetch_add(count as u64, SeqCst);
    }

    /// Whoever is killed half-way leaves more begun and less returned than there was, which is on the safe side.
    fn end(&self, seat: usize, count: usize, written: usize) {
        self.returned.words()[seat].fetch_add(written as u64, SeqCst);
        self.begun.words()[seat].fetch_sub((count - written) as u64, SeqCst);
    }

    fn receive(&self, bytes: &[u8]) -> Result<()> {
        let piece = Piece::of(bytes);
        for seat in 0..SEATS {
            let count = piece.counts[seat];
            let before = self.received.words()[seat].fetch_add(count, SeqCst);
            let begun = self.begun.get(seat);
            ensure!(
                count == 0 || before + count <= begun,
                "{} bytes of writer {seat} arrived, but it began only {begun}",
                before + count
            );
            self.breaks.words()[seat].fetch_add(piece.breaks[seat], SeqCst);
        }
        Ok(())
    }
}

/// What one read brought, counted for each writer's seat.
struct Piece {
    counts: [u64; SEATS],
    breaks: [u64; SEATS],
}

impl Piece {
    fn of(bytes: &[u8]) -> Self {
        let mut piece = Piece {
            counts: [0; SEATS],
            breaks: [0; SEATS],
        };
        let mut next = [None; SEATS];
        for byte in bytes.iter().copied().map(Byte) {
            let (seat, place) = (byte.seat(), byte.place());
            piece.counts[seat] += 1;
            if next[seat].is_some_and(|next| next != place) {
                piece.breaks[seat] += 1;
            }
            next[seat] = Some((place + 1) % Byte::PERIOD);
        }
        piece
    }
}

struct Bytes<'a> {
    channel: &'a Channel,
    ledger: Ledger,
    writers_killed: [u64; SEATS],
    /// How many bytes the readers that were killed may have taken with them.
    lost: u64,
}

impl Play for Bytes<'_> {
    fn write(&self, turn: Turn, ready: &Notice, stop: &Stop) -> Result<()> {
        signals::let_usr1_interrupt()?;
        let source = Source::new(turn.seat)?;
        source.while_it_acts(|| write_bytes(self.channel, &self.ledger, &source, turn, ready, stop))
    }

    fn read(&self, turn: Turn, ready: &Notice) -> Result<()> {
        signals::let_usr1_interrupt()?;
        read_bytes(self.channel, &self.ledger, turn, ready)
    }

    fn writer_was_killed(&mut self, turn: Turn) {
        self.writers_killed[turn.seat] += 1;
    }

    fn reader_was_killed(&mut self, turn: Turn) {
        self.lost += self.ledger.asked.get(turn.seat);
    }
}

fn write_bytes(
    channel: &Channel,
    ledger: &Ledger,
    source: &Source,
    turn: Turn,
    ready: &Notice,
    stop: &Stop,
) -> Result<()> {
    let fd = channel.open_writer()?;
    ready.give()?;
    let mut random = Rng::with_seed(turn.number as u64);
    let mut place = 0;
    while !stop.said() {
        let count = random.usize(1..=MOST);
        let start = source.at(place, &mut random)?;
        ledger.begin(turn.seat, count);
        let written = match write_at(&fd, start, count) {
            Err(Errno::EINTR) => 0,
            result => result.context("write")?,
        };
        ledger.end(turn.seat, count, written);
        place += written;
    }
    Ok(())
}

fn read_bytes(channel: &Channel, ledger: &Ledger, turn: Turn, ready: &Notice) -> Result<()> {
    let target = Target::new(turn.seat)?;
    let fd = channel.open_reader()?;
    ready.give()?;
    let mut random = Rng::with_seed(turn.number as u64);
    loop {
        let wanted = random.usize(1..=MOST);
        ledger.asked.set(turn.seat, wanted as u64);
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
        ledger.asked.set(turn.seat, 0);
        if count == Some(0) {
            return Ok(());
        }
    }
}

pub fn every_byte_is_accounted_for_at_any_size(context: &Context) -> Result<()> {
    let mut bytes = Bytes {
        channel: &context.channel,
        ledger: Ledger::new()?,
        writers_killed: [0; SEATS],
        lost: 0,
    };
    crowd::run(context, &mut bytes, context.lengths.stress)?;
    bytes.settle_accounts()
}

impl Bytes<'_> {
    fn settle_accounts(&self) -> Result<()> {
        let mut missing = 0;
        for seat in 0..SEATS {
            missing += self.settle_seat(seat)?;
        }
        ensure!(
            missing <= self.lost,
            "{missing} bytes are missing; the readers that were killed account for {} at most",
            self.lost
        );
        Ok(())
    }

    /// How many bytes of this writer are missing.
    fn settle_seat(&self, seat: usize) -> Result<u64> {
        let (begun, returned) = (self.ledger.begun.get(seat), self.ledger.returned.get(seat));
        let received = self.ledger.received.get(seat);
        let (breaks, killed) = (self.ledger.breaks.get(seat), self.writers_killed[seat]);
        println!(
            "writer {seat}: {begun} bytes begun, {returned} written, {received} received, {breaks} breaks, {killed} killed"
        );
        ensure!(received > 0, "nothing of writer {seat} arrived");
        ensure!(
            received <= begun,
            "{received} bytes of writer {seat} arrived, but it began only {begun}"
        );
        // A writer that follows one that was killed does not know where in the sequence that one ended.
        ensure!(
            Manner::of(seat) == Manner::Changing || breaks <= killed,
            "the bytes of writer {seat} are out of sequence {breaks} times; it was killed {killed} times"
        );
        Ok(returned.saturating_sub(received))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequence(seat: usize, places: std::ops::Range<usize>) -> Vec<u8> {
        places.map(|place| Byte::new(seat, place).0).collect()
    }

    #[test]
    fn writers_may_interleave() {
        let bytes = [sequence(1, 0..40), sequence(7, 9..10), sequence(1, 40..80)].concat();
        let piece = Piece::of(&bytes);
        assert_eq!(piece.counts, [0, 80, 0, 0, 0, 0, 0, 1]);
        assert_eq!(piece.breaks, [0; SEATS]);
    }

    #[test]
    fn a_lost_byte_and_a_repeated_one_are_breaks() {
        let bytes = [sequence(2, 0..10), sequence(2, 11..20), sequence(2, 19..30)].concat();
        assert_eq!(Piece::of(&bytes).breaks[2], 2);
    }
}
