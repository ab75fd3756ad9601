// SPDX-License-Identifier: MIT OR Apache-2.0
//! Streaming throughput for each message size.

use anyhow::Result;

use super::plan::{Plan, Scale, Sizes, title};
use super::stream::{Length, Stream};
use crate::harness::pinning::Placement;
use crate::harness::rounds::{Case, Metric};
use crate::mechanisms::{Batching, Task, Workload};

pub const SIZES: Sizes = [
    &[1024],
    &[64, 65536],
    &[64, 256, 1024, 4096, 16384, 65536],
    &[64, 1024, 4096, 65536],
];
const SHORT: usize = 64;
/// Sent in batches.
const BATCHED: Sizes = [&[], &[SHORT], &[SHORT], &[SHORT]];
const BATCH: usize = 32;

pub fn cases(plan: &Plan) -> Result<Vec<Case>> {
    let single = plan.tasks(&SIZES, Workload::Stream);
    let single = single.filter(|task| !is_left_out(plan, task));
    let single = single.map(|task| case(plan, task, None));
    let batched = plan.tasks(&BATCHED, Workload::Stream);
    let batched = batched.map(|task| batched_case(plan, task));
    single.chain(batched).collect()
}

/// To take less time, a standard run has long messages on two processors only, where there are two.
pub(super) fn is_left_out(plan: &Plan, task: &Task) -> bool {
    plan.scale == Scale::Standard
        && plan.sizes.is_empty()
        && task.placement == Placement::SameCpu
        && plan.placements.contains(&Placement::TwoCpus)
        && task.size > SHORT
}

fn case(plan: &Plan, task: Task, batch: Option<usize>) -> Result<Case> {
    let batches = batch.map(|batch| format!("in batches of {batch}"));
    let title = title(&task, &batches.unwrap_or_default());
    plan.case("throughput", title, Metric::Rate, task, |setup| Stream {
        batch,
        ..Stream::new(setup, Length::For(plan.duration))
    })
}

/// Mechanisms with a batch interface, and their reference.
fn batched_case(plan: &Plan, task: Task) -> Result<Case> {
    let mut case = case(plan, task, Some(BATCH))?.axis("batch", BATCH);
    let batching = |name: &str| {
        let mut same = plan.mechanisms.iter().filter(|one| one.name == name);
        same.find_map(|one| one.batching)
    };
    case.skipped
        .retain(|skip| batching(skip.mechanism).is_some());
    case.subjects
        .retain(|subject| batching(subject.mechanism).is_some());
    for subject in &mut case.subjects {
        if batching(subject.mechanism) == Some(Batching::OneByOne) {
            subject.label += ", one by one";
        }
    }
    Ok(case)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    use crate::mechanisms::sluice_ring::Variant;
    use crate::mechanisms::sluice_ring_memfd;
    use crate::suites::plan::tests::plan;

    #[test]
    fn batches_are_measured_with_a_batch_interface_and_the_reference() {
        let mut plan = plan();
        let rings = [Variant::NeverSpins, Variant::AlwaysSpins];
        plan.mechanisms
            .extend(rings.map(sluice_ring_memfd::mechanism).map(Rc::new));
        let case = batched_case(&plan, plan.task(64, Workload::Stream)).unwrap();
        assert_eq!(case.title, "64 B in batches of 32 same-cpu");
        let labels: Vec<_> = case.subjects.iter().map(|one| &one.label).collect();
        assert_eq!(
            labels,
            ["pipe, one by one", "sluice-ring-memfd (never spins)"]
        );
        // It supports batches, but not this placement.
        let skipped: Vec<_> = case.skipped.iter().map(|skip| &skip.label).collect();
        assert_eq!(skipped, ["sluice-ring-memfd (always spins)"]);
    }
}
