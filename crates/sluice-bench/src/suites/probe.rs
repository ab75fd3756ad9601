// SPDX-License-Identifier: MIT OR Apache-2.0
//! The distance of two processors, by the round trip of a bare cache line. What the kernel reports about caches is often
//! made up in virtual machines.

use std::rc::Rc;
use std::time::Duration;

use anyhow::Result;

use super::rtt::RoundTrip;
use super::{Plan, Room};
use crate::harness::class::{Class, Probe};
use crate::harness::clock;
use crate::harness::pinning::Placement;
use crate::harness::rounds::Job;
use crate::harness::samples::summarize;
use crate::mechanisms::Cacheline;

const DURATION: Duration = Duration::from_millis(20);

/// None for what a single processor measures.
pub struct CachelineProbe(Option<RoundTrip>);

impl CachelineProbe {
    pub fn new(plan: &Plan) -> Result<Self> {
        let room = |cpus| Room {
            home: plan.home.clone(),
            cpus,
        };
        let cpus = Placement::TwoCpus.cpus()?;
        Ok(Self(cpus.map(|cpus| {
            RoundTrip::new(Rc::new(Cacheline::SHARED), room(cpus), 1, DURATION)
        })))
    }
}

impl Probe for CachelineProbe {
    /// The best round trip counts: a busy machine only makes processors look farther.
    fn class(&self) -> Result<Option<Class>> {
        let Some(round_trip) = &self.0 else {
            return Ok(None);
        };
        let summary = summarize(round_trip.measure()?.samples);
        let best = |nanoseconds: u64| nanoseconds.saturating_sub(clock::reading_cost_ns());
        Ok(summary.map(|summary| Class::of_round_trip(best(summary.min))))
    }
}
