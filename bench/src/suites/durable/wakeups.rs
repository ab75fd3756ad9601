// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two processes wake each other by eventfds: what a set costs at least that another process stores.

use std::rc::Rc;
use std::time::Duration;

use anyhow::{Result, ensure};
use nix::sys::eventfd::EventFd;
use sluice_testkit::clock;
use sluice_testkit::workers::{Pair, Side, Start};

use super::resources::Resources;
use crate::harness::rounds::{Job, Measurement};
use crate::suites::setup::{PROCESS_TIMEOUT, run};

const GO_ON: u64 = 1;
const END: u64 = 2;

pub struct Wakeups {
    pub resources: Rc<Resources>,
    pub duration: Duration,
}

impl Job for Wakeups {
    fn check(&self) -> Result<()> {
        let done = self.run(Duration::from_millis(1))?;
        ensure!(done.messages > 0, "no process was woken");
        Ok(())
    }

    fn measure(&self) -> Result<Measurement> {
        self.run(self.duration)
    }
}

impl Wakeups {
    /// The scheduler places both, as it places a process that sets values, and the daemon.
    fn run(&self, duration: Duration) -> Result<Measurement> {
        let files = [EventFd::new()?, EventFd::new()?];
        let pair = Pair::start(files, PROCESS_TIMEOUT, |side, [there, back], start| {
            self.resources.confinement.enter_any_cpu()?;
            match side {
                Side::First => request(&there, &back, duration, start),
                Side::Second => reply(&there, &back, start),
            }
        })?;
        let [first, second] = run(pair, PROCESS_TIMEOUT + duration)?;
        let [elapsed_ns, cpu_ns] = first[..2].try_into()?;
        Ok(Measurement {
            samples: first[2..].to_vec(),
            messages: first[2..].len() as u64,
            elapsed_ns,
            cpu_ns: cpu_ns + second[0],
            ..Measurement::default()
        })
    }
}

/// Returns the elapsed time, the processor time, and the time of each pair of wake-ups.
fn request(
    there: &EventFd,
    back: &EventFd,
    duration: Duration,
    start: &mut Start,
) -> Result<Vec<u64>> {
    let mut times = Vec::new();
    start.wait()?;
    let cpu = clock::thread_cpu_ns();
    let begin = clock::now_ns();
    let mut now = begin;
    while u128::from(now - begin) < duration.as_nanos() {
        there.write(GO_ON)?;
        back.read()?;
        let end = clock::now_ns();
        times.push(end - now);
        now = end;
    }
    let cpu = clock::thread_cpu_ns() - cpu;
    there.write(END)?;
    Ok([&[now - begin, cpu], &times[..]].concat())
}

fn reply(there: &EventFd, back: &EventFd, start: &mut Start) -> Result<Vec<u64>> {
    start.wait()?;
    let cpu = clock::thread_cpu_ns();
    while there.read()? == GO_ON {
        back.write(GO_ON)?;
    }
    Ok(vec![clock::thread_cpu_ns() - cpu])
}
