// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread that receives packets and records their latencies. It does nothing else, so that the display does not delay it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use sluice::feed::{Consumer, Feed, Header, Reader, RecvError};

use super::cycles;
use super::histogram::{Histogram, increment};

/// How the packets are received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    Read,
    Map,
}

/// Written by the receiving thread, and read by the display.
pub struct Stats {
    received: AtomicU64,
    pub nanoseconds: Histogram,
    /// Empty where programs cannot read the counter.
    pub cycles: Histogram,
}

impl Stats {
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    fn record(&self, header: &Header) {
        let now = cycles::now();
        let latency = header.latency().as_nanos();
        self.nanoseconds
            .record(u64::try_from(latency).unwrap_or(u64::MAX));
        if let Some(now) = now {
            self.cycles.record(now.saturating_sub(header.cycles));
        }
        increment(&self.received);
    }
}

/// The end of the thread comes with the end of the process, or an error.
pub struct Receiver {
    pub stats: Arc<Stats>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Receiver {
    /// Claims the feed, and starts the thread. `cpu`: the processor that it runs on. `spin`: the spin limit.
    pub fn start(
        feed: &Feed,
        mode: Mode,
        cpu: Option<usize>,
        spin: Option<Duration>,
    ) -> Result<Self> {
        let mut source = Source::claim(feed, mode, spin)?;
        let stats = Arc::new(Stats {
            received: AtomicU64::new(0),
            nanoseconds: Histogram::new(),
            cycles: Histogram::new(),
        });
        let recorded = Arc::clone(&stats);
        let cpu = cpu.map(only).transpose()?;
        let thread = thread::spawn(move || {
            if let Some(cpu) = cpu {
                sched_setaffinity(Pid::from_raw(0), &cpu)
                    .context("cannot pin the receiver to --pin; choose an online processor")?;
            }
            loop {
                source.receive(&recorded)?;
            }
        });
        Ok(Self {
            stats,
            thread: Some(thread),
        })
    }

    /// Fails with the error of the thread if it has ended.
    pub fn check(&mut self) -> Result<()> {
        match self.thread.take_if(|thread| thread.is_finished()) {
            None => Ok(()),
            Some(thread) => thread
                .join()
                .unwrap_or_else(|_| Err(anyhow!("the receiver panicked"))),
        }
    }
}

fn only(cpu: usize) -> Result<CpuSet> {
    let mut set = CpuSet::new();
    set.set(cpu)
        .with_context(|| format!("there is no processor {cpu}; choose another for --pin"))?;
    Ok(set)
}

enum Source {
    Read(Reader),
    Map(Consumer),
}

impl Source {
    fn claim(feed: &Feed, mode: Mode, spin: Option<Duration>) -> Result<Self> {
        Ok(match mode {
            Mode::Read => {
                let reader = feed.reader()?;
                if let Some(limit) = spin {
                    feed.set_spin_limit(limit)?;
                }
                Self::Read(reader)
            }
            Mode::Map => {
                let mut consumer = feed.map()?;
                if let Some(limit) = spin {
                    consumer.set_spin_limit(limit);
                }
                Self::Map(consumer)
            }
        })
    }

    fn receive(&mut self, stats: &Stats) -> Result<(), RecvError> {
        match self {
            Self::Read(reader) => stats.record(&*reader.recv()?),
            Self::Map(consumer) => stats.record(&*consumer.recv()?),
        }
        Ok(())
    }
}
