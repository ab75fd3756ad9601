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
use sluice_testkit::workers::{Pair, Side, Start};

use super::Counting;
use super::counter::{Count, mark};
use crate::harness::rounds::{Job, Measurement};
use crate::mechanisms::{Link, Receiver, Sender, pipe};
use crate::suites::rtt::RoundTrip;
use crate::suites::setup::{self, PROCESS_TIMEOUT, Setup};
use crate::suites::stream;

/// Not counted: page faults, and adaptive parts of the kernel.
const WARM_UP: u64 = 50;
const ROUND_TRIPS: u64 = 500;
const CHECKED_ROUND_TRIPS: usize = 50;
/// What is counted: several times what a pipe or a socket holds by default. It fits into a ring of 4 MiB, whose sender never waits.
const STREAM_BYTES: usize = 512 << 10;
/// Not counted, as above. All memory of a pipe or a socket has been used by then, with its default capacity.
const WARM_UP_BYTES: usize = 256 << 10;
const MIN_MESSAGES: usize = 1024;
/// The receiver has received all earlier messages by then, and sleeps.
const PAUSE: Duration = Duration::from_millis(2);

/// One message at a time, and its reply.
pub struct RoundTrips {
    pub setup: Setup,
    pub counting: Rc<Counting>,
}

impl Job for RoundTrips {
    fn check(&self) -> Result<()> {
        RoundTrip::counted(self.setup.clone(), CHECKED_ROUND_TRIPS)
            .measure()
            .map(drop)
    }

    fn measure(&self) -> Result<Measurement> {
        self.counting.measure(ROUND_TRIPS, || {
            let link = || self.setup.mechanism.link(self.setup.size);
            let links = [link()?, link()?];
            Pair::start(links, PROCESS_TIMEOUT, |side, links, start| match side {
                Side::First => self.request(links, start),
                Side::Second => self.reply(links, start),
            })
        })
    }
}

impl RoundTrips {
    /// Returns the time between the marks.
    fn request(&self, [forward, backward]: [Link; 2], start: &mut Start) -> Result<Vec<u64>> {
        let (mut sender, mut receiver) = (forward.sender()?, backward.receiver()?);
        self.setup.confinement.enter(Side::First)?;
        start.wait()?;
        let mut message = vec![0xa5; self.setup.size];
        for _ in 0..WARM_UP {
            round_trip(&mut *sender, &mut *receiver, &mut message)?;
        }
        let begin = clock::now_ns();
        mark();
        for _ in 0..ROUND_TRIPS {
            round_trip(&mut *sender, &mut *receiver, &mut message)?;
        }
        mark();
        Ok(vec![clock::now_ns() - begin])
    }

    fn reply(&self, [forward, backward]: [Link; 2], start: &mut Start) -> Result<Vec<u64>> {
        let (mut receiver, mut sender) = (forward.receiver()?, backward.sender()?);
        self.setup.confinement.enter(Side::Second)?;
        start.wait()?;
        let mut message = vec![0; self.setup.size];
        while receiver.receive(&mut message)? == self.setup.size {
            sender.send(&message)?;
        }
        Ok(Vec::new())
    }
}

fn round_trip(
    sender: &mut dyn Sender,
    receiver: &mut dyn Receiver,
    message: &mut [u8],
) -> Result<()> {
    sender.send(message)?;
    let length = receiver.receive(message)?;
    ensure!(
        length == message.len(),
        "the peer ended during a round trip"
    );
    Ok(())
}

/// Messages in one direction, from the first call of the sender until the receiver has the last one.
pub struct Stream {
    pub setup: Setup,
    pub counting: Rc<Counting>,
}

impl Job for Stream {
    fn check(&self) -> Result<()> {
        let length = stream::Length::Messages(self.messages());
        stream::Stream::new(self.setup.clone(), length).check()
    }

    fn measure(&self) -> Result<Measurement> {
        self.counting.measure(self.messages(), || {
            let (counted, has_counted) = pipe::pipe()?;
            let [counted, has_counted] = [counted, has_counted].map(File::from);
            self.setup.pair(
                |sender, start| self.send(sender, start, &counted),
                |receiver, start| self.receive(receiver, start, &has_counted),
            )
        })
    }
}

impl Stream {
    fn messages(&self) -> u64 {
        messages(self.setup.size)
    }

    fn warm_up(&self) -> u64 {
        (WARM_UP_BYTES / self.setup.size) as u64
    }

    /// Returns the time of the first mark. Sleeps until the receiver has executed the second one: the end of this process is not
    /// counted.
    fn send(
        &self,
        mut sender: Box<dyn Sender>,
        start: &mut Start,
        mut counted: &File,
    ) -> Result<Vec<u64>> {
        // Threads of a library, too.
        self.setup.confinement.enter(Side::First)?;
        start.wait()?;
        let message = vec![0xa5; self.setup.size];
        for _ in 0..self.warm_up() {
            sender.send(&message)?;
        }
        sleep(PAUSE);
        let begin = clock::now_ns();
        mark();
        for _ in 0..self.messages() {
            sender.send(&message)?;
        }
        counted.read_exact(&mut [0])?;
        Ok(vec![begin])
    }

    /// Returns the time of the second mark.
    fn receive(
        &self,
        mut receiver: Box<dyn Receiver>,
        start: &mut Start,
        mut has_counted: &File,
    ) -> Result<Vec<u64>> {
        self.setup.confinement.enter(Side::Second)?;
        start.wait()?;
        let mut message = vec![0; self.setup.size];
        for _ in 0..self.warm_up() + self.messages() {
            let length = receiver.receive(&mut message)?;
            ensure!(length == message.len(), "the sender ended early");
        }
        mark();
        let end = clock::now_ns();
        has_counted.write_all(&[1])?;
        ensure!(
            receiver.receive(&mut message)? == 0,
            "more bytes arrived than were sent"
        );
        Ok(vec![end])
    }
}

fn messages(size: usize) -> u64 {
    (STREAM_BYTES / size).max(MIN_MESSAGES) as u64
}

impl Counting {
    /// The instructions of each operation of a pair of processes, which execute the marks.
    fn measure(
        &self,
        operations: u64,
        start: impl FnOnce() -> Result<Pair>,
    ) -> Result<Measurement> {
        let (times, count) = self
            .counter
            .count(|| setup::run(start()?, 4 * PROCESS_TIMEOUT))?;
        Ok(self.measurement(count, elapsed(&times), operations))
    }

    fn measurement(&self, count: Count, elapsed_ns: u64, operations: u64) -> Measurement {
        let counted = self.background.per_operation(count, elapsed_ns, operations);
        Measurement {
            instructions: Some(counted),
            ..Measurement::default()
        }
    }
}

/// A side that executes both marks returns the time between them; otherwise each returns the time of its mark.
fn elapsed([first, second]: &[Vec<u64>; 2]) -> u64 {
    let number = |numbers: &[u64]| numbers.first().copied().unwrap_or(0);
    match second.is_empty() {
        true => number(first),
        false => number(second).saturating_sub(number(first)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::pinning::Placement;
    use crate::suites::instructions::control::Background;
    use crate::suites::instructions::counter::Counter;
    use crate::suites::setup::tests::setup_in;
    use sluice_testkit::workers::serial;

    #[test]
    fn operations_run_without_the_plugin_and_their_marks_are_missed() {
        let _serial = serial();
        let path = std::env::temp_dir().join(format!("sluice-operations-{}", std::process::id()));
        std::fs::write(&path, "").unwrap();
        let counting = Rc::new(Counting {
            counter: Counter::at(path.clone()),
            background: Background::default(),
        });
        let setup = setup_in(Placement::SameCpu, Rc::new(pipe::mechanism()), 64);
        let jobs: [Box<dyn Job>; 2] = [
            Box::new(RoundTrips {
                setup: setup.clone(),
                counting: Rc::clone(&counting),
            }),
            Box::new(Stream { setup, counting }),
        ];
        for job in jobs {
            job.check().unwrap();
            // Both processes have ended without an error by then.
            let error = job.measure().unwrap_err();
            assert!(error.to_string().contains("0 marks"), "{error}");
        }
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn streams_are_long_enough_for_large_messages() {
        assert_eq!([64, 4096, 65536].map(messages), [8192, 1024, 1024]);
    }

    #[test]
    fn the_time_between_the_marks_is_found() {
        assert_eq!(elapsed(&[vec![70], vec![]]), 70);
        assert_eq!(elapsed(&[vec![100], vec![170]]), 70);
    }
}
