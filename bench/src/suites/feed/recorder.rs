// SPDX-License-Identifier: MIT OR Apache-2.0
//! The numbers that a measured process reports: times and counts, and then the samples in cycles.

use anyhow::{Result, ensure};
use sluice_testkit::clock;

use super::source::SIZE;
use crate::harness::rounds::Measurement;

const FIGURES: usize = 4;

pub struct Recorder {
    begin_ns: u64,
    begin_cycles: u64,
    begin_cpu_ns: u64,
    lost: u64,
    samples: Vec<u64>,
}

impl Recorder {
    pub fn new(samples: usize) -> Self {
        let samples = Vec::with_capacity(samples);
        Self {
            begin_cpu_ns: clock::cpu_ns(),
            begin_ns: clock::now_ns(),
            begin_cycles: clock::cycles(),
            lost: 0,
            samples,
        }
    }

    pub fn samples(&self) -> usize {
        self.samples.len()
    }

    pub fn add(&mut self, cycles: u64) {
        self.samples.push(cycles);
    }

    pub fn add_lost(&mut self, packets: u64) {
        self.lost += packets;
    }

    pub fn numbers(self) -> Vec<u64> {
        let figures = vec![
            clock::now_ns() - self.begin_ns,
            clock::cycles() - self.begin_cycles,
            clock::cpu_ns() - self.begin_cpu_ns,
            self.lost,
        ];
        [figures, self.samples].concat()
    }
}

/// The measurement with the numbers of a process. Its clock gives the frequency of the time stamp counter.
pub fn measurement(mut numbers: Vec<u64>) -> Result<Measurement> {
    ensure!(
        numbers.len() > FIGURES,
        "a process reported {} numbers",
        numbers.len()
    );
    let samples = numbers.split_off(FIGURES);
    let [elapsed_ns, cycles, cpu_ns, lost] = numbers[..].try_into()?;
    ensure!(
        elapsed_ns > 0 && cycles > 0,
        "the time stamp counter stands still"
    );
    let cycles_per_ns = cycles as f64 / elapsed_ns as f64;
    let messages = samples.len() as u64;
    let ns = |cycles: u64| (cycles as f64 / cycles_per_ns).round() as u64;
    Ok(Measurement {
        samples: samples.into_iter().map(ns).collect(),
        messages,
        bytes: messages * SIZE as u64,
        elapsed_ns,
        cpu_ns,
        lost: Some(lost),
        cycles_per_ns: Some(cycles_per_ns),
        ..Measurement::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_become_nanoseconds_by_the_clock_of_the_process() {
        let measured = measurement(vec![1000, 2500, 7, 3, 25, 50]).unwrap();
        assert_eq!(measured.samples, [10, 20]);
        assert_eq!(measured.cycles_per_ns, Some(2.5));
        assert_eq!((measured.lost, measured.messages), (Some(3), 2));
        assert!(measurement(vec![1000, 2500, 7, 3]).is_err());
        assert!(measurement(vec![1000, 0, 7, 3, 25]).is_err());
    }
}
