// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writers and readers that are interrupted and killed at random; each killed one is replaced.

use std::time::Duration;

use anyhow::{Result, bail};
use fastrand::Rng;
use nix::sys::signal::Signal;

use crate::registry::Context;
use crate::support::child::{Child, spawn_keeping};
use crate::support::event::Event;
use crate::support::shared::SharedWords;
use crate::support::time::Deadline;

/// The number of concurrent writers, and of readers.
pub use crate::support::numbered_bytes::SLOTS;

/// Identifies a process: a slot has one process at a time, and numbers are unique among writers and among readers.
#[derive(Clone, Copy)]
pub struct WorkerId {
    pub slot: usize,
    pub number: usize,
}

/// The work of writers and readers. Both run in children and record their work in shared memory.
pub trait Workload {
    /// Opens, notifies `ready`, and writes until `stop` is set.
    fn write(&self, id: WorkerId, ready: &Event, stop: &Stop) -> Result<()>;
    /// Opens, notifies `ready`, and reads until EOF.
    fn read(&self, id: WorkerId, ready: &Event) -> Result<()>;
    /// This writer, or reader, was killed.
    fn writer_was_killed(&mut self, id: WorkerId);
    fn reader_was_killed(&mut self, id: WorkerId);
}

/// A flag in shared memory that ends the writing.
pub struct Stop(SharedWords);

impl Stop {
    fn new() -> Result<Self> {
        Ok(Stop(SharedWords::new(1)?))
    }

    pub fn is_set(&self) -> bool {
        self.0.get(0) != 0
    }

    fn set(&self) {
        self.0.set(0, 1);
    }
}

#[derive(Clone, Copy)]
enum Side {
    Writers,
    Readers,
}

struct Worker {
    id: WorkerId,
    child: Child<()>,
}

struct Workers<'a, P: Workload> {
    workload: &'a mut P,
    ready: Event,
    stop: Stop,
    writers: Vec<Worker>,
    readers: Vec<Worker>,
    writers_so_far: usize,
    readers_so_far: usize,
}

impl<P: Workload> Workers<'_, P> {
    fn new_writer(&mut self, slot: usize) -> Result<Worker> {
        let number = self.writers_so_far;
        self.writers_so_far += 1;
        let id = WorkerId { slot, number };
        let child = spawn_keeping(&format!("writer {number}"), &self.ready.fds(), || {
            self.workload.write(id, &self.ready, &self.stop)
        })?;
        self.ready.wait("a writer is ready")?;
        Ok(Worker { id, child })
    }

    fn new_reader(&mut self, slot: usize) -> Result<Worker> {
        let number = self.readers_so_far;
        self.readers_so_far += 1;
        let id = WorkerId { slot, number };
        let child = spawn_keeping(&format!("reader {number}"), &self.ready.fds(), || {
            self.workload.read(id, &self.ready)
        })?;
        self.ready.wait("a reader is ready")?;
        Ok(Worker { id, child })
    }

    fn start_all(&mut self) -> Result<()> {
        for slot in 0..SLOTS {
            let reader = self.new_reader(slot)?;
            self.readers.push(reader);
            let writer = self.new_writer(slot)?;
            self.writers.push(writer);
        }
        Ok(())
    }

    fn kill(&mut self, side: Side, slot: usize) -> Result<()> {
        match side {
            Side::Writers => {
                let killed = self.writers.remove(slot);
                killed.child.kill()?;
                self.workload.writer_was_killed(killed.id);
                let successor = self.new_writer(slot)?;
                self.writers.insert(slot, successor);
            }
            Side::Readers => {
                let killed = self.readers.remove(slot);
                killed.child.kill()?;
                self.workload.reader_was_killed(killed.id);
                let successor = self.new_reader(slot)?;
                self.readers.insert(slot, successor);
            }
        }
        Ok(())
    }

    /// No child may end unless it is killed: one that did reports a failure. Readers are checked first, since their
    /// failure may cause a writer to fail.
    fn expect_all_running(&mut self) -> Result<()> {
        for side in [&mut self.readers, &mut self.writers] {
            for slot in 0..side.len() {
                if side[slot].child.has_ended()? {
                    side.remove(slot).child.finish()?;
                    bail!("a child at slot {slot} ended before it was stopped");
                }
            }
        }
        Ok(())
    }

    /// Interrupts one process, or kills and replaces it.
    fn disrupt(&mut self, random: &mut Rng) -> Result<()> {
        let slot = random.usize(..SLOTS);
        match random.usize(0..=19) {
            0 => self.kill(Side::Writers, slot),
            1 => self.kill(Side::Readers, slot),
            2..=10 => self.writers[slot].child.signal(Signal::SIGUSR1),
            _ => self.readers[slot].child.signal(Signal::SIGUSR1),
        }
    }

    /// Writers finish their current write; readers then get EOF.
    fn finish(self, last_writer: impl Sized) -> Result<()> {
        self.stop.set();
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

/// The maximum time between two disruptions, in microseconds.
const PAUSE: usize = 2000;

/// An upper bound of the processes that either side needs within `span`: one in twenty disruptions kills one of them,
/// and disruptions are a millisecond apart on average.
pub fn workers_within(span: Duration) -> usize {
    2 * SLOTS + (span.as_millis() as usize).div_ceil(10)
}

/// Runs all of them for `span`.
pub fn run<P: Workload>(context: &Context, workload: &mut P, span: Duration) -> Result<()> {
    let mut workers = Workers {
        workload,
        ready: Event::new()?,
        stop: Stop::new()?,
        writers: Vec::new(),
        readers: Vec::new(),
        writers_so_far: 0,
        readers_so_far: 0,
    };
    // This writer prevents EOF until the end, this reader until others have opened.
    let (reader, writer) = context.channel.open_ends()?;
    workers.start_all()?;
    drop(reader);

    let mut random = Rng::with_seed(12);
    let deadline = Deadline::after(span);
    while !deadline.passed() {
        std::thread::sleep(Duration::from_micros(random.usize(0..=PAUSE) as u64));
        workers.expect_all_running()?;
        workers.disrupt(&mut random)?;
    }
    workers.finish(writer)
}
