// SPDX-License-Identifier: MIT OR Apache-2.0
//! The latency of packets of one size, or the time of a null operation: one process, pinned to the processor of the consumer.
//!
//! Consumers of mapped memory spin without a pause instruction. Emulated by QEMU, each one takes the global lock of the
//! emulator, which the interrupt of the timer needs, too: of all that spin, the median latency then varies between 2 and 300 µs.

use std::fs::File;
use std::io::Read as _;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use sluice_testkit::clock;
use sluice_testkit::hft::MIN_PACKET;
use sluice_testkit::workers::{Group, Side};

use crate::harness::figures::{CYCLES_PER_NS, LOST};
use crate::harness::rounds::{Job, Measurement};
use crate::suites::setup::{Confinement, PROCESS_TIMEOUT};

/// Bytes of a packet, half of them payload.
pub const SIZE: usize = MIN_PACKET;
pub const INTERVAL: Duration = Duration::from_millis(1);
/// Not counted: caches warm up first.
const WARM_UP: usize = 20;
const CHECKED: usize = 50;

/// Takes a sample in cycles, with the number of packets that were lost before it.
pub type Sampler = Box<dyn FnMut() -> Result<[u64; 2]>>;

/// Opens what is measured. A timer that publishes packets is started on this processor.
pub type Open = fn(usize) -> Result<Sampler>;

#[derive(Clone, Copy)]
pub struct Header {
    pub sequence: u64,
    /// Packets lost directly before this one, by the producer's count; None if it does not count them.
    pub lost: Option<u64>,
    pub cycles: u64,
}

/// The time stamp counter after the last byte of a packet, and its header; None if it was overwritten while it was copied.
pub type Received = (u64, Option<Header>);

/// Samples packets; `receive` waits for the next one, and copies it.
pub fn packets(mut receive: impl FnMut() -> Result<Received> + 'static) -> Result<Sampler> {
    let mut undamaged = move || -> Result<(u64, Header)> {
        loop {
            if let (now, Some(header)) = receive()? {
                return Ok((now, header));
            }
        }
    };
    let (_, mut last) = undamaged()?;
    for _ in 1..WARM_UP {
        (_, last) = undamaged()?;
    }
    Ok(Box::new(move || {
        let (now, header) = undamaged()?;
        let latency = now.checked_sub(header.cycles);
        let latency = latency.context("the time stamp counters of two processors differ")?;
        let lost = lost(&last, &header)?;
        last = header;
        Ok([latency, lost])
    }))
}

pub fn read_packets(mut file: File, header: fn(&[u8; SIZE]) -> Option<Header>) -> Result<Sampler> {
    packets(move || {
        let mut packet = [0; SIZE];
        let read = file.read(&mut packet)?;
        let now = clock::cycles();
        ensure!(read == SIZE, "a packet has {read} bytes instead of {SIZE}");
        let header = header(&packet).context("a packet arrived damaged")?;
        Ok((now, Some(header)))
    })
}

/// The number of packets lost between two. Fails if the second one is older, or if the producer counts others.
fn lost(before: &Header, after: &Header) -> Result<u64> {
    let (last, sequence) = (before.sequence, after.sequence);
    let lost = sequence.checked_sub(last + 1);
    let lost = lost.with_context(|| format!("packet {sequence} follows packet {last}"))?;
    let counted = after.lost.unwrap_or(lost);
    ensure!(
        counted == lost,
        "{lost} packets are missing before packet {sequence}, but it says {counted}"
    );
    Ok(lost)
}

pub struct Latency {
    pub open: Open,
    /// The null operation has none.
    pub has_packets: bool,
    /// The processors of the timer and of the consumer.
    pub confinement: Confinement,
    pub samples: usize,
}

impl Latency {
    fn run(&self, samples: usize) -> Result<Measurement> {
        let [timer_cpu, _] = self.confinement.cpus;
        let mut group = Group::start(1, (), PROCESS_TIMEOUT, |_, (), start| {
            self.confinement.enter(Side::Second)?;
            start.wait()?;
            record(samples, (self.open)(timer_cpu)?)
        })?;
        group.go()?;
        // Packets that were lost and packets of a timer that is late take time, too.
        let packets = 4 * (WARM_UP + samples) as u32;
        let numbers = group.finish(PROCESS_TIMEOUT + packets * INTERVAL)?;
        let (mut measured, lost) = measurement(&numbers.concat())?;
        if self.has_packets {
            measured.bytes = measured.messages * SIZE as u64;
            measured.figures.push((LOST, lost as f64));
        }
        Ok(measured)
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

/// Takes samples in cycles, each with the number of lost packets. Returns times and counts, and then the samples.
fn record(samples: usize, mut take: Sampler) -> Result<Vec<u64>> {
    let mut cycles = Vec::with_capacity(samples);
    let mut all_lost = 0;
    let (begin_cpu_ns, begin_ns) = (clock::cpu_ns(), clock::now_ns());
    let begin_cycles = clock::cycles();
    for _ in 0..samples {
        let [sample, lost] = take()?;
        cycles.push(sample);
        all_lost += lost;
    }
    let (time, counted) = (clock::now_ns() - begin_ns, clock::cycles() - begin_cycles);
    let figures = vec![time, counted, clock::cpu_ns() - begin_cpu_ns, all_lost];
    Ok([figures, cycles].concat())
}

/// Also returns the number of lost packets. The clock of the process gives the frequency of the time stamp counter.
fn measurement(numbers: &[u64]) -> Result<(Measurement, u64)> {
    let [elapsed_ns, cycles, cpu_ns, lost, ref samples @ ..] = *numbers else {
        bail!("a process reported {} numbers", numbers.len());
    };
    let cycles_per_ns = cycles as f64 / elapsed_ns as f64;
    let is_running = cycles_per_ns.is_normal();
    ensure!(is_running, "the time stamp counter stands still");
    let ns = |cycles: &u64| (*cycles as f64 / cycles_per_ns).round() as u64;
    let measured = Measurement {
        samples: samples.iter().map(ns).collect(),
        messages: samples.len() as u64,
        elapsed_ns,
        cpu_ns,
        ..Measurement::default()
    };
    Ok((measured.with(CYCLES_PER_NS, cycles_per_ns), lost))
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
        for (sequence, counted, expected) in [
            (8, Some(0), Some(0)),
            (10, Some(2), Some(2)),
            (10, None, Some(2)),
            (10, Some(1), None),
            (7, None, None),
        ] {
            let lost = lost(&header(7, Some(0)), &header(sequence, counted));
            assert_eq!(lost.ok(), expected, "{sequence}");
        }
    }

    #[test]
    fn cycles_become_nanoseconds_by_the_clock_of_the_process() {
        let (measured, lost) = measurement(&[1000, 2500, 7, 3, 25, 50]).unwrap();
        assert_eq!((measured.samples, lost), (vec![10, 20], 3));
        assert_eq!(measured.figures, [(CYCLES_PER_NS, 2.5)]);
    }
}
