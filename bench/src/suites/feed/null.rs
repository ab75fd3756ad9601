// SPDX-License-Identifier: MIT OR Apache-2.0
//! A system call that returns at once: the cost of entering and leaving the kernel.

use anyhow::{Context, Result};
use sluice_testkit::clock;
use sluice_testkit::hft::null;
use sluice_testkit::workers::{Group, Side, Start};

use super::hft;
use super::recorder::{Recorder, measurement};
use crate::harness::rounds::{Job, Measurement};
use crate::suites::setup::{Confinement, PROCESS_TIMEOUT};

pub struct NullOperation {
    confinement: Confinement,
    samples: usize,
}

impl NullOperation {
    pub fn new(confinement: Confinement, samples: usize) -> Self {
        Self {
            confinement,
            samples,
        }
    }

    fn call(&self, start: &mut Start) -> Result<Vec<u64>> {
        self.confinement.enter(Side::Second)?;
        let file = hft::open()?;
        start.wait()?;
        let mut recorder = Recorder::new(self.samples);
        for _ in 0..self.samples {
            let begin = clock::cycles();
            null(&file).context("the null operation")?;
            recorder.add(clock::cycles() - begin);
        }
        Ok(recorder.numbers())
    }
}

impl Job for NullOperation {
    fn check(&self) -> Result<()> {
        self.measure().map(drop)
    }

    fn measure(&self) -> Result<Measurement> {
        let mut group = Group::start(1, (), PROCESS_TIMEOUT, |_, (), start| self.call(start))?;
        group.go()?;
        let numbers = group.finish(PROCESS_TIMEOUT)?.concat();
        Ok(Measurement {
            lost: None,
            bytes: 0,
            ..measurement(numbers)?
        })
    }
}
