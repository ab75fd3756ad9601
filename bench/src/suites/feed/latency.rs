// SPDX-License-Identifier: MIT OR Apache-2.0
//! The latency of packets: one process that is the consumer, pinned to its processor.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sluice_testkit::clock;
use sluice_testkit::workers::{Group, Side, Start};

use super::recorder::{Recorder, measurement};
use super::source::{Header, INTERVAL_NS, Open, SIZE, Source};
use crate::harness::rounds::{Job, Measurement};
use crate::suites::setup::{Confinement, PROCESS_TIMEOUT};

/// Not counted: caches warm up first.
const WARM_UP: usize = 20;
const CHECKED: usize = 50;

pub struct Latency {
    open: Open,
    /// The processors of the timer and of the consumer.
    confinement: Confinement,
    samples: usize,
}

impl Latency {
    pub fn new(open: Open, confinement: Confinement, samples: usize) -> Self {
        Self {
            open,
            confinement,
            samples,
        }
    }

    fn run(&self, samples: usize) -> Result<Measurement> {
        let mut group = Group::start(1, (), PROCESS_TIMEOUT, |_, (), start| {
            self.consume(start, samples)
        })?;
        group.go()?;
        // Packets that were lost and those of a timer that is late take time, too.
        let packets = 4 * (WARM_UP + samples) as u64;
        let limit = PROCESS_TIMEOUT + Duration::from_nanos(packets * INTERVAL_NS);
        measurement(group.finish(limit)?.concat())
    }

    fn consume(&self, start: &mut Start, samples: usize) -> Result<Vec<u64>> {
        self.confinement.enter(Side::Second)?;
        let mut source = (self.open)()?;
        start.wait()?;
        let [timer_cpu, _] = self.confinement.cpus;
        source.start(timer_cpu)?;
        let mut last = receive(&mut *source)?.0;
        for _ in 1..WARM_UP {
            last = receive(&mut *source)?.0;
        }
        let mut recorder = Recorder::new(samples);
        while recorder.samples() < samples {
            let (header, now) = receive(&mut *source)?;
            let latency = now.checked_sub(header.cycles);
            recorder.add(latency.context("the time stamp counters of two processors differ")?);
            recorder.add_lost(lost(&last, &header)?);
            last = header;
        }
        Ok(recorder.numbers())
    }
}

impl Job for Latency {
    /// Follows the sequence numbers, as each measurement does.
    fn check(&self) -> Result<()> {
        self.run(CHECKED).map(drop)
    }

    fn measure(&self) -> Result<Measurement> {
        self.run(self.samples)
    }
}

/// The next undamaged packet, and the time stamp counter after its last byte.
fn receive(source: &mut dyn Source) -> Result<(Header, u64)> {
    let mut packet = [0; SIZE];
    loop {
        source.receive(&mut packet)?;
        let now = clock::cycles();
        if let Some(header) = source.header(&packet)? {
            return Ok((header, now));
        }
    }
}

/// The number of packets lost between two. Fails if the second one is older, or if the producer counts others.
fn lost(before: &Header, after: &Header) -> Result<u64> {
    ensure!(
        after.sequence > before.sequence,
        "packet {} follows packet {}",
        after.sequence,
        before.sequence
    );
    let lost = after.sequence - before.sequence - 1;
    let counted = after.lost.unwrap_or(lost);
    ensure!(
        counted == lost,
        "{lost} packets are missing before packet {}, but it says {counted}",
        after.sequence
    );
    Ok(lost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_follow_from_sequence_numbers_and_agree_with_the_producer() {
        let header = |sequence, lost| Header {
            sequence,
            lost,
            cycles: 0,
        };
        let first = header(7, Some(0));
        assert_eq!(lost(&first, &header(8, Some(0))).unwrap(), 0);
        assert_eq!(lost(&first, &header(10, Some(2))).unwrap(), 2);
        assert_eq!(lost(&first, &header(10, None)).unwrap(), 2);
        assert!(lost(&first, &header(10, Some(1))).is_err());
        assert!(lost(&first, &header(7, None)).is_err());
        assert!(lost(&first, &header(6, None)).is_err());
    }
}
