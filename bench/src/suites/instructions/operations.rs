// SPDX-License-Identifier: MIT OR Apache-2.0
//! The counted operations. They are as few instructions of the benchmark itself as possible: no clock is read and no message
//! is compared between the marks, which is what the checks do.

use std::fs::File;
use std::io::{Read, Write};
use std::rc::Rc;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Result, ensure};
use sluice_testkit::clock;
use sluice_testkit::workers::{Side, Start};

use super::counter::{Counter, mark};
use crate::harness::rounds::{Job, Measurement};
use crate::mechanisms::{Ends, Receiver, Workload, pipe};
use crate::suites::rtt::RoundTrip;
use crate::suites::setup::{PROCESS_TIMEOUT, Setup};
use crate::suites::stream::{Length, Stream};

const TIMEOUT: Duration = PROCESS_TIMEOUT.saturating_mul(4);
/// Not counted: page faults, and adaptive parts of the kernel.
const WARM_UP: u64 = 50;
const ROUND_TRIPS: u64 = 500;
const CHECKED_ROUND_TRIPS: usize = 50;
/// What is counted: several times what a pipe or a socket holds by default. It fits into a ring of 4 MiB, whose sender never waits.
const STREAM_BYTES: usize = 512 << 10;
/// Not counted, either. All memory of a pipe or a socket has been used by then, with its default capacity.
const WARM_UP_BYTES: usize = 256 << 10;
const MIN_MESSAGES: usize = 1024;
/// The receiver has received all earlier messages by then, and sleeps.
const PAUSE: Duration = Duration::from_millis(2);

/// A request and its reply; or messages in one direction, from the first send until the receiver has the last one.
pub struct Operations {
    pub setup: Setup,
    pub workload: Workload,
    pub counter: Rc<Counter>,
}

impl Job for Operations {
    fn check(&self) -> Result<()> {
        let setup = self.setup.clone();
        match self.workload {
            Workload::RequestReply => {
                let counted = RoundTrip::counted(setup, CHECKED_ROUND_TRIPS);
                counted.measure().map(drop)
            }
            _ => Stream::new(setup, Length::Messages(self.count())).check(),
        }
    }

    fn measure(&self) -> Result<Measurement> {
        let (times, count) = self.counter.count(|| match self.workload {
            Workload::RequestReply => self.run_round_trips(),
            _ => self.run_stream(),
        })?;
        let [begin, end] = times.concat()[..].try_into()?;
        let elapsed_ns = end.saturating_sub(begin);
        Ok(self.counter.measurement(count, elapsed_ns, self.count()))
    }
}

/// The processes of a pair execute the marks, and return their times.
impl Operations {
    fn count(&self) -> u64 {
        match self.workload {
            Workload::RequestReply => ROUND_TRIPS,
            _ => (STREAM_BYTES / self.setup.size).max(MIN_MESSAGES) as u64,
        }
    }

    /// Moves all threads of a process, also the threads of a library, and waits for the start. Returns a message.
    fn begin(&self, side: Side, start: &mut Start) -> Result<Vec<u8>> {
        self.setup.confinement.enter(side)?;
        start.wait()?;
        Ok(vec![0xa5; self.setup.size])
    }

    /// Returns the times of both marks, which the requester executes.
    fn run_round_trips(&self) -> Result<[Vec<u64>; 2]> {
        let process = |side, (mut sender, mut receiver): Ends, start: &mut Start| {
            let mut message = self.begin(side, start)?;
            if side == Side::Second {
                while receiver.receive(&mut message)? == message.len() {
                    sender.send(&message)?;
                }
                return Ok(Vec::new());
            }
            let mut round_trips = |count| -> Result<()> {
                for _ in 0..count {
                    sender.send(&message)?;
                    receive(&mut *receiver, &mut message)?;
                }
                Ok(())
            };
            round_trips(WARM_UP)?;
            let begin = clock::now_ns();
            mark();
            round_trips(ROUND_TRIPS)?;
            mark();
            Ok(vec![begin, clock::now_ns()])
        };
        self.setup.run_both_ways(TIMEOUT, process)
    }

    fn run_stream(&self) -> Result<[Vec<u64>; 2]> {
        let (counted, has_counted) = pipe::pipe()?;
        let [counted, has_counted] = [counted, has_counted].map(File::from);
        let warm_up = (WARM_UP_BYTES / self.setup.size) as u64;
        self.setup.run(
            TIMEOUT,
            |mut sender, start| {
                let message = self.begin(Side::First, start)?;
                let mut send = |count| (0..count).try_for_each(|_| sender.send(&message));
                send(warm_up)?;
                sleep(PAUSE);
                let begin = clock::now_ns();
                mark();
                send(self.count())?;
                // Sleeps until the receiver has executed the second mark: the end of this process is not counted.
                (&counted).read_exact(&mut [0])?;
                Ok(vec![begin])
            },
            |mut receiver, start| {
                let mut message = self.begin(Side::Second, start)?;
                for _ in 0..warm_up + self.count() {
                    receive(&mut *receiver, &mut message)?;
                }
                mark();
                let end = clock::now_ns();
                (&has_counted).write_all(&[1])?;
                let after = receiver.receive(&mut message)?;
                ensure!(after == 0, "more bytes arrived than were sent");
                Ok(vec![end])
            },
        )
    }
}

fn receive(receiver: &mut dyn Receiver, message: &mut [u8]) -> Result<()> {
    let length = receiver.receive(message)?;
    ensure!(length == message.len(), "the peer ended early");
    Ok(())
}
