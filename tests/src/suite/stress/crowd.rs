// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writers and readers that are interrupted and killed at random; each that is killed is followed by another.

use std::time::Duration;

use anyhow::{Result, bail};
use fastrand::Rng;
use nix::sys::signal::Signal;

use crate::registry::Context;
use crate::support::child::{Child, spawn_keeping};
use crate::support::notice::Notice;
use crate::support::shared::SharedWords;
use crate::support::time::Deadline;

/// Writers at any time, and readers at any time.
pub const SEATS: usize = 8;

/// Who runs: at one seat there is one at a time, and no two ever have the same number on their side.
#[derive(Clone, Copy)]
pub struct Turn {
    pub seat: usize,
    pub number: usize,
}

/// What writers and readers do. Both run in children and account for what they do in shared memory.
pub trait Play {
    /// Opens, says so with `ready`, and writes until `stop` says that it is enough.
    fn write(&self, turn: Turn, ready: &Notice, stop: &Stop) -> Result<()>;
    /// Opens, says so with `ready`, and reads to the end of the file.
    fn read(&self, turn: Turn, ready: &Notice) -> Result<()>;
    /// The writer, or the reader, of this turn was killed and is gone.
    fn writer_was_killed(&mut self, turn: Turn);
    fn reader_was_killed(&mut self, turn: Turn);
}

/// The end of writing, said to all children at once.
pub struct Stop(SharedWords);

impl Stop {
    fn new() -> Result<Self> {
        Ok(Stop(SharedWords::new(1)?))
    }

    pub fn said(&self) -> bool {
        self.0.get(0) != 0
    }

    fn say(&self) {
        self.0.set(0, 1);
    }
}

#[derive(Clone, Copy)]
enum Side {
    Writers,
    Readers,
}

struct Member {
    turn: Turn,
    child: Child<()>,
}

struct Crowd<'a, P: Play> {
    play: &'a mut P,
    ready: Notice,
    stop: Stop,
    writers: Vec<Member>,
    readers: Vec<Member>,
    writers_so_far: usize,
    readers_so_far: usize,
}

impl<P: Play> Crowd<'_, P> {
    fn new_writer(&mut self, seat: usize) -> Result<Member> {
        let number = self.writers_so_far;
        self.writers_so_far += 1;
        let turn = Turn { seat, number };
        let child = spawn_keeping(&format!("writer {number}"), &self.ready.fds(), || {
            self.play.write(turn, &self.ready, &self.stop)
        })?;
        self.ready.wait("a writer is ready")?;
        Ok(Member { turn, child })
    }

    fn new_reader(&mut self, seat: usize) -> Result<Member> {
        let number = self.readers_so_far;
        self.readers_so_far += 1;
        let turn = Turn { seat, number };
        let child = spawn_keeping(&format!("reader {number}"), &self.ready.fds(), || {
            self.play.read(turn, &self.ready)
        })?;
        self.ready.wait("a reader is ready")?;
        Ok(Member { turn, child })
    }

    fn seat_all(&mut self) -> Result<()> {
        for seat in 0..SEATS {
            let reader = self.new_reader(seat)?;
            self.readers.push(reader);
            let writer = self.new_writer(seat)?;
            self.writers.push(writer);
        }
        Ok(())
    }

    fn kill(&mut self, side: Side, seat: usize) -> Result<()> {
        match side {
            Side::Writers => {
                let killed = self.writers.remove(seat);
                killed.child.kill()?;
                self.play.writer_was_killed(killed.turn);
                let successor = self.new_writer(seat)?;
                self.writers.insert(seat, successor);
            }
            Side::Readers => {
                let killed = self.readers.remove(seat);
                killed.child.kill()?;
                self.play.reader_was_killed(killed.turn);
                let successor = self.new_reader(seat)?;
                self.readers.insert(seat, successor);
            }
        }
        Ok(())
    }

    /// Nobody ends before the end but by being killed: one who did found a fault, and says which. Readers come first,
    /// since a writer may fail only because they did.
    fn expect_all_at_work(&mut self) -> Result<()> {
        for side in [&mut self.readers, &mut self.writers] {
            for seat in 0..side.len() {
                if side[seat].child.has_ended()? {
                    side.remove(seat).child.finish()?;
                    bail!("a child at seat {seat} ended before it was told to");
                }
            }
        }
        Ok(())
    }

    /// A signal to one of them, or the end of one and another in its place.
    fn disturb(&mut self, random: &mut Rng) -> Result<()> {
        let seat = random.usize(..SEATS);
        match random.usize(..=19) {
            0 => self.kill(Side::Writers, seat),
            1 => self.kill(Side::Readers, seat),
            2..=10 => self.writers[seat].child.signal(Signal::SIGUSR1),
            _ => self.readers[seat].child.signal(Signal::SIGUSR1),
        }
    }

    /// The writers finish what they are at, then the readers find the end of the file.
    fn disband(self, last_writer: impl Sized) -> Result<()> {
        self.stop.say();
        for writer in self.writers {
            writer.child.finish()?;
        }
        drop(last_writer);
        for reader in self.readers {
            reader.child.finish()?;
        }
        Ok(())
    }
}

/// The longest that one disturbance is followed by none, in microseconds.
const PAUSE: usize = 2000;

/// More turns than either side needs within `span`: it loses one at every twentieth disturbance, and those come a
/// millisecond apart on average.
pub fn turns_within(span: Duration) -> usize {
    2 * SEATS + (span.as_millis() as usize).div_ceil(10)
}

/// Lets them all run for so long.
pub fn run<P: Play>(context: &Context, play: &mut P, span: Duration) -> Result<()> {
    let mut crowd = Crowd {
        play,
        ready: Notice::new()?,
        stop: Stop::new()?,
        writers: Vec::new(),
        readers: Vec::new(),
        writers_so_far: 0,
        readers_so_far: 0,
    };
    // The writer keeps the end of the file away until the end, the reader only until there are others.
    let (reader, writer) = context.channel.open_ends()?;
    crowd.seat_all()?;
    drop(reader);

    let mut random = Rng::with_seed(12);
    let deadline = Deadline::after(span);
    while !deadline.passed() {
        std::thread::sleep(Duration::from_micros(random.usize(..=PAUSE) as u64));
        crowd.expect_all_at_work()?;
        crowd.disturb(&mut random)?;
    }
    crowd.disband(writer)
}
