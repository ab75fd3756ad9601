// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program against which the adapter of a library is calibrated: the library's own benchmark, or the smallest program in
//! its documented style, without the interface that all mechanisms share here. Its two processes have the same processors,
//! the same clock and the same time as the processes of the adapter.

use std::rc::Rc;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};
use sluice_testkit::clock;
use sluice_testkit::shared::SharedWords;
use sluice_testkit::workers::{Pair, Side, Start};

/// Not counted, as for the adapters.
const WARM_UP: usize = 200;
/// Bytes between two readings of the clock in a stream, as for the adapters.
const BYTES_PER_CLOCK_READ: usize = 64 * 1024;
const INTERVAL: Duration = Duration::from_micros(100);

/// Starts the two processes of a program, which return the same numbers as the processes of the suites rtt and throughput.
pub type OwnProgram = Rc<dyn Fn(&Run) -> Result<Pair>>;

/// A program that is started with what its adapter has.
pub fn own_program<T: 'static>(
    shared: &Rc<T>,
    start: impl Fn(&Rc<T>, &Run) -> Result<Pair> + 'static,
) -> OwnProgram {
    let shared = Rc::clone(shared);
    Rc::new(move |run| start(&shared, run))
}

pub struct Run<'a> {
    pub size: usize,
    /// The most round trips; None for a stream.
    pub round_trips: Option<usize>,
    pub duration: Duration,
    pub timeout: Duration,
    pub enter: &'a dyn Fn(Side) -> Result<()>,
}

/// What one of the two processes does: the requester and the source begin.
#[derive(Clone, Copy)]
pub enum Role {
    Requester,
    Replier,
    Source,
    Sink,
}

impl Run<'_> {
    /// Both processes have `shared`; `process` opens what its role needs, and then loops.
    pub fn start<T>(
        &self,
        shared: T,
        process: impl Fn(T, Role, Loop) -> Result<Vec<u64>>,
    ) -> Result<Pair> {
        let shared = (shared, SharedWords::new(FINISHED + 1)?);
        Pair::start(shared, self.timeout, |side, (shared, progress), start| {
            let role = match (self.round_trips, side) {
                (Some(_), Side::First) => Role::Requester,
                (Some(_), Side::Second) => Role::Replier,
                (None, Side::First) => Role::Source,
                (None, Side::Second) => Role::Sink,
            };
            let steps = Loop {
                run: self,
                progress: &progress,
                start,
            };
            process(shared, role, steps)
        })
    }
}

/// The number of messages, which is 0 before the first process knows it.
const TOTAL: usize = 0;
/// A process that closed its end before the peer has finished could discard messages.
const FINISHED: usize = 1;

/// The loops. The functions that they are given are called without indirection.
pub struct Loop<'a> {
    run: &'a Run<'a>,
    progress: &'a SharedWords,
    start: &'a mut Start,
}

impl Loop<'_> {
    /// `request` sends a request and waits for the reply.
    pub fn request(self, mut request: impl FnMut() -> Result<()>) -> Result<Vec<u64>> {
        let max = self.run.round_trips.context("a stream has no requests")?;
        (self.run.enter)(Side::First)?;
        self.start.wait()?;
        for _ in 0..WARM_UP {
            request()?;
        }
        let mut samples = Vec::with_capacity(max);
        let (begin, cpu) = (clock::now_ns(), clock::cpu_ns());
        let end = begin + self.run.duration.as_nanos() as u64;
        let mut now = begin;
        while samples.len() < max && now < end {
            let began = clock::now_ns();
            request()?;
            now = clock::now_ns();
            samples.push(now - began);
        }
        let used = clock::cpu_ns() - cpu;
        // Before the last message is sent, which therefore needs no mark.
        self.progress
            .set(TOTAL, (WARM_UP + samples.len() + 1) as u64);
        request()?;
        self.progress.set(FINISHED, 1);
        Ok([vec![now - begin, used], samples].concat())
    }

    /// `reply` waits for requests and replies; it returns their number, because the next one may arrive before it returns.
    pub fn reply(self, mut reply: impl FnMut() -> Result<u64>) -> Result<Vec<u64>> {
        (self.run.enter)(Side::Second)?;
        self.start.wait()?;
        let mut replies = 0;
        let mut cpu = None;
        while !self.is_last(replies) {
            replies += reply()?;
            if cpu.is_none() && replies >= WARM_UP as u64 {
                cpu = Some(clock::cpu_ns());
            }
        }
        let now = clock::cpu_ns();
        self.await_peer();
        Ok(vec![now - cpu.unwrap_or(now)])
    }

    pub fn send(self, mut put: impl FnMut() -> Result<()>) -> Result<Vec<u64>> {
        (self.run.enter)(Side::First)?;
        let per_clock_read = (BYTES_PER_CLOCK_READ / self.run.size).clamp(1, 256) as u64;
        self.start.wait()?;
        let cpu = clock::cpu_ns();
        let begin = clock::now_ns();
        let mut messages = 0;
        while clock::now_ns() - begin < self.run.duration.as_nanos() as u64 {
            for _ in 0..per_clock_read {
                put()?;
            }
            messages += per_clock_read;
        }
        messages += 1;
        self.progress.set(TOTAL, messages);
        put()?;
        let used = clock::cpu_ns() - cpu;
        self.await_peer();
        Ok(vec![messages, begin, used])
    }

    /// `take` waits for messages of a stream, and returns their number.
    pub fn receive(self, mut take: impl FnMut() -> Result<u64>) -> Result<Vec<u64>> {
        (self.run.enter)(Side::Second)?;
        self.start.wait()?;
        let cpu = clock::cpu_ns();
        let mut messages = 0;
        while !self.is_last(messages) {
            messages += take()?;
        }
        let (end, used) = (clock::now_ns(), clock::cpu_ns() - cpu);
        self.progress.set(FINISHED, 1);
        Ok(vec![messages * self.run.size as u64, end, used])
    }

    fn is_last(&self, messages: u64) -> bool {
        let total = self.progress.get(TOTAL);
        total != 0 && messages >= total
    }

    fn await_peer(&self) {
        while self.progress.get(FINISHED) == 0 {
            sleep(INTERVAL);
        }
    }
}
