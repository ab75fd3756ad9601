// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two processes wake each other by eventfds: what a set costs at least that another process stores.

use std::time::Duration;

use anyhow::{Result, ensure};
use nix::sys::eventfd::EventFd;
use sluice_testkit::clock;
use sluice_testkit::workers::Side;

use crate::harness::rounds::{Job, Measurement};
use crate::suites::setup::{Confinement, PROCESS_TIMEOUT, run};

const GO_ON: u64 = 1;
const END: u64 = 2;

pub struct Wakeups {
    pub confinement: Confinement,
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
    /// The first process returns its processor time and the time of each pair of wake-ups, the second one its processor time.
    fn run(&self, duration: Duration) -> Result<Measurement> {
        let files = [EventFd::new()?, EventFd::new()?];
        let limit = PROCESS_TIMEOUT + duration;
        let [mut samples, replies] = run(files, limit, |side, [there, back], start| {
            // The scheduler places both, as it places a process that sets values, and the daemon.
            self.confinement.enter_any_cpu()?;
            let mut numbers = vec![0];
            start.wait()?;
            let cpu = clock::thread_cpu_ns();
            if side == Side::First {
                let mut now = clock::now_ns();
                let end = now + duration.as_nanos() as u64;
                while now < end {
                    there.write(GO_ON)?;
                    back.read()?;
                    let before = std::mem::replace(&mut now, clock::now_ns());
                    numbers.push(now - before);
                }
                there.write(END)?;
            } else {
                while there.read()? == GO_ON {
                    back.write(GO_ON)?;
                }
            }
            numbers[0] = clock::thread_cpu_ns() - cpu;
            Ok(numbers)
        })?;
        Ok(Measurement {
            cpu_ns: samples.remove(0) + replies[0],
            messages: samples.len() as u64,
            elapsed_ns: samples.iter().sum(),
            samples,
            ..Measurement::default()
        })
    }
}
