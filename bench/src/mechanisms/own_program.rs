// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program against which the adapter of a library is calibrated: the library's own benchmark, or the smallest program in
//! its documented style, without the interface that all mechanisms share here. Its two processes have the same processors,
//! the same clock and the same time as those of the adapter.

use std::rc::Rc;
use std::thread::sleep;
use std::time::Duration;

use anyhow::Result;
use sluice_testkit::clock;
use sluice_testkit::shared::SharedWords;
use sluice_testkit::workers::{Pair, Side, Start};

/// Not counted, as for the adapters.
const WARM_UP: usize = 200;
/// Bytes between two readings of the clock in a stream, as for the adapters.
const BYTES_PER_CLOCK_READ: usize = 64 * 1024;
/// The interval of checks whether the peer has finished.
const INTERVAL: Duration = Duration::from_micros(100);

/// The parts of such a program. The functions of its inner loops are called without indirection.
pub trait Program: 'static {
    /// What both processes have.
    type Shared: 'static;
    type Requester;
    type Replier;
    type Source;
    type Sink;

    /// Before the fork.
    fn share(&self, size: usize) -> Result<Self::Shared>;
    fn requester(shared: Self::Shared) -> Result<Self::Requester>;
    fn replier(shared: Self::Shared) -> Result<Self::Replier>;
    /// Sends a request and waits for the reply.
    fn request(requester: &mut Self::Requester) -> Result<()>;
    /// Waits for requests and replies; returns their number, because the next one may arrive before this returns.
    fn reply(replier: &mut Self::Replier) -> Result<u64>;
    fn source(shared: Self::Shared) -> Result<Self::Source>;
    fn sink(shared: Self::Shared) -> Result<Self::Sink>;
    /// Sends a message of a stream.
    fn put(source: &mut Self::Source) -> Result<()>;
    /// Waits for messages of a stream, and returns their number.
    fn take(sink: &mut Self::Sink) -> Result<u64>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    RoundTrips { max: usize },
    Stream,
}

/// The conditions of a run.
pub struct Run<'a> {
    pub size: usize,
    pub shape: Shape,
    pub duration: Duration,
    /// The time limit for both processes to be set up.
    pub timeout: Duration,
    /// Moves a process to its processor.
    pub enter: &'a dyn Fn(Side) -> Result<()>,
}

/// Any such program.
pub trait OwnProgram {
    /// Starts its two processes. Of round trips, the first one returns the elapsed time, its processor time and all
    /// samples, the second one its processor time. Of a stream, they return the messages, the time of the first one
    /// and the processor time; and the messages, the time of the last one and the processor time.
    fn start(&self, run: &Run) -> Result<Pair>;
}

/// For `Mechanism::own_program`.
pub fn erased(program: impl Program) -> Option<Rc<dyn OwnProgram>> {
    Some(Rc::new(program))
}

impl<P: Program> OwnProgram for P {
    fn start(&self, run: &Run) -> Result<Pair> {
        let shared = (self.share(run.size)?, Progress::new()?);
        Pair::start(
            shared,
            run.timeout,
            |side, (shared, progress), start| match (run.shape, side) {
                (Shape::RoundTrips { max }, Side::First) => {
                    let requester = P::requester(shared)?;
                    request::<P>(requester, &progress, run, max, start)
                }
                (Shape::RoundTrips { .. }, Side::Second) => {
                    reply::<P>(P::replier(shared)?, &progress, run, start)
                }
                (Shape::Stream, Side::First) => {
                    send::<P>(P::source(shared)?, &progress, run, start)
                }
                (Shape::Stream, Side::Second) => {
                    receive::<P>(P::sink(shared)?, &progress, run, start)
                }
            },
        )
    }
}

/// How the second process knows the last message, without a mark in messages.
struct Progress(SharedWords);

impl Progress {
    /// The number of messages, which is 0 before the first process knows it.
    const TOTAL: usize = 0;
    const FINISHED: usize = 1;

    fn new() -> Result<Self> {
        Ok(Self(SharedWords::new(Self::FINISHED + 1)?))
    }

    /// Set before the last message is sent.
    fn set_total(&self, messages: u64) {
        self.0.set(Self::TOTAL, messages);
    }

    fn is_last(&self, messages: u64) -> bool {
        let total = self.0.get(Self::TOTAL);
        total != 0 && messages >= total
    }

    fn finish(&self) {
        self.0.set(Self::FINISHED, 1);
    }

    /// A process that closed its end before could discard messages.
    fn await_peer(&self) {
        while self.0.get(Self::FINISHED) == 0 {
            sleep(INTERVAL);
        }
    }
}

fn request<P: Program>(
    mut requester: P::Requester,
    progress: &Progress,
    run: &Run,
    max: usize,
    start: &mut Start,
) -> Result<Vec<u64>> {
    (run.enter)(Side::First)?;
    start.wait()?;
    for _ in 0..WARM_UP {
        P::request(&mut requester)?;
    }
    let mut samples = Vec::with_capacity(max);
    let (begin, cpu) = (clock::now_ns(), clock::cpu_ns());
    let end = begin + run.duration.as_nanos() as u64;
    let mut now = begin;
    while samples.len() < max && now < end {
        let began = clock::now_ns();
        P::request(&mut requester)?;
        now = clock::now_ns();
        samples.push(now - began);
    }
    let used = clock::cpu_ns() - cpu;
    progress.set_total((WARM_UP + samples.len() + 1) as u64);
    P::request(&mut requester)?;
    progress.finish();
    Ok([vec![now - begin, used], samples].concat())
}

fn reply<P: Program>(
    mut replier: P::Replier,
    progress: &Progress,
    run: &Run,
    start: &mut Start,
) -> Result<Vec<u64>> {
    (run.enter)(Side::Second)?;
    start.wait()?;
    let mut replies = 0;
    let mut cpu = None;
    while !progress.is_last(replies) {
        replies += P::reply(&mut replier)?;
        if cpu.is_none() && replies >= WARM_UP as u64 {
            cpu = Some(clock::cpu_ns());
        }
    }
    let now = clock::cpu_ns();
    progress.await_peer();
    Ok(vec![now - cpu.unwrap_or(now)])
}

fn send<P: Program>(
    mut source: P::Source,
    progress: &Progress,
    run: &Run,
    start: &mut Start,
) -> Result<Vec<u64>> {
    (run.enter)(Side::First)?;
    let per_clock_read = (BYTES_PER_CLOCK_READ / run.size).clamp(1, 256) as u64;
    start.wait()?;
    let cpu = clock::cpu_ns();
    let begin = clock::now_ns();
    let mut messages = 0;
    while clock::now_ns() - begin < run.duration.as_nanos() as u64 {
        for _ in 0..per_clock_read {
            P::put(&mut source)?;
        }
        messages += per_clock_read;
    }
    messages += 1;
    progress.set_total(messages);
    P::put(&mut source)?;
    let used = clock::cpu_ns() - cpu;
    progress.await_peer();
    Ok(vec![messages, begin, used])
}

fn receive<P: Program>(
    mut sink: P::Sink,
    progress: &Progress,
    run: &Run,
    start: &mut Start,
) -> Result<Vec<u64>> {
    (run.enter)(Side::Second)?;
    start.wait()?;
    let cpu = clock::cpu_ns();
    let mut messages = 0;
    while !progress.is_last(messages) {
        messages += P::take(&mut sink)?;
    }
    let (end, used) = (clock::now_ns(), clock::cpu_ns() - cpu);
    progress.finish();
    Ok(vec![messages, end, used])
}
