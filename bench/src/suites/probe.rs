// SPDX-License-Identifier: MIT OR Apache-2.0
//! The distance of two processors, measured by the round trip of a cache line. The cache topology that the kernel
//! reports is often fictitious in virtual machines.

use std::rc::Rc;
use std::time::Duration;

use anyhow::Result;
use sluice_testkit::clock;

use super::plan::Plan;
use super::rtt::RoundTrip;
use super::setup::{Confinement, Setup};
use crate::harness::class::Class;
use crate::harness::pinning::Placement;
use crate::harness::rounds::Job;
use crate::mechanisms::cacheline_pingpong;

const DURATION: Duration = Duration::from_millis(20);

/// None with a single processor, and on emulated ones: what a transfer of a line takes there tells of the emulation.
pub struct CachelineProbe(Option<RoundTrip>);

impl CachelineProbe {
    pub fn new(plan: &Plan) -> Result<Self> {
        let cpus = match plan.emulated {
            true => None,
            false => Placement::TwoCpus.cpus()?,
        };
        let cgroup = plan.cgroup.clone();
        let setup = cpus.map(|cpus| Setup {
            mechanism: Rc::new(cacheline_pingpong::mechanism(false)),
            confinement: Confinement { cgroup, cpus },
            size: 1,
        });
        Ok(Self(setup.map(|setup| RoundTrip::new(setup, DURATION))))
    }

    /// The fastest round trip counts: load on the machine only adds to it.
    pub fn class(&self) -> Result<Option<Class>> {
        let Some(round_trip) = &self.0 else {
            return Ok(None);
        };
        let fastest = round_trip.measure()?.samples.into_iter().min();
        let cost = clock::reading_cost_ns();
        Ok(fastest.map(|time| Class::of_round_trip(time.saturating_sub(cost))))
    }
}
