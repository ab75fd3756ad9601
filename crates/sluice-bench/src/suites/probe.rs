// SPDX-License-Identifier: MIT OR Apache-2.0
//! The distance of two processors, measured by the round trip of a cache line. The cache topology that the kernel
//! reports is often fictitious in virtual machines.

use std::rc::Rc;
use std::time::Duration;

use anyhow::Result;
use sluice_testkit::clock;

use super::rtt::RoundTrip;
use super::{Confinement, Plan};
use crate::harness::class::{Class, Probe};
use crate::harness::pinning::Placement;
use crate::harness::rounds::Job;
use crate::harness::samples::summarize;
use crate::mechanisms::CachelinePingPong;

const DURATION: Duration = Duration::from_millis(20);

/// None with a single processor.
pub struct CachelineProbe(Option<RoundTrip>);

impl CachelineProbe {
    pub fn new(plan: &Plan) -> Result<Self> {
        let confinement = |cpus| Confinement {
            cgroup: plan.cgroup.clone(),
            cpus,
        };
        let cpus = Placement::TwoCpus.cpus()?;
        Ok(Self(cpus.map(|cpus| {
            RoundTrip::new(
                Rc::new(CachelinePingPong::SHARED),
                confinement(cpus),
                1,
                DURATION,
            )
        })))
    }
}

impl Probe for CachelineProbe {
    /// The fastest round trip counts: load on the machine only adds to it.
    fn class(&self) -> Result<Option<Class>> {
        let Some(round_trip) = &self.0 else {
            return Ok(None);
        };
        let summary = summarize(round_trip.measure()?.samples);
        let best = |nanoseconds: u64| nanoseconds.saturating_sub(clock::reading_cost_ns());
        Ok(summary.map(|summary| Class::of_round_trip(best(summary.min))))
    }
}
