// SPDX-License-Identifier: MIT OR Apache-2.0
//! How far apart two processors are. What the kernel reports about caches is often made up in virtual machines, so the
//! distance is probed: a cache line goes there and back.

use std::rc::Rc;
use std::time::Duration;

use anyhow::Result;

use super::rtt::RoundTrip;
use super::{Plan, Room};
use crate::harness::clock;
use crate::harness::pinning::Placement;
use crate::harness::rounds::Job;
use crate::harness::samples::summarize;
use crate::mechanisms::Cacheline;

/// None when there is only one processor. The best round trip counts: a busy machine only makes processors look farther.
pub fn probe_class(plan: &Plan) -> Result<Option<&'static str>> {
    let Some(cpus) = Placement::TwoCpus.cpus()? else {
        return Ok(None);
    };
    let room = Room {
        home: plan.home.clone(),
        cpus,
    };
    let probe = RoundTrip::new(Rc::new(Cacheline), room, Duration::from_millis(50));
    let summary = summarize(probe.measure()?.samples);
    Ok(summary.map(|summary| class(summary.min.saturating_sub(clock::reading_cost_ns()))))
}

/// Threads of one core answer within tens of nanoseconds, cores under one cache within some hundred, the rest later.
fn class(round_trip_ns: u64) -> &'static str {
    match round_trip_ns {
        0..75 => "one-core",
        75..300 => "near",
        _ => "far",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_follow_the_distance() {
        assert_eq!([20, 140, 600].map(class), ["one-core", "near", "far"]);
    }
}
