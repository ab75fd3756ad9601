// SPDX-License-Identifier: MIT OR Apache-2.0
//! Streaming throughput for each message size.

use anyhow::Result;
use sluice_testkit::units;

use super::plan::Sizes;
use super::setup::Setup;
use super::stream::{Length, Stream};
use super::{Plan, Scale};
use crate::harness::pinning::Placement;
use crate::harness::rounds::{Case, Metric};
use crate::mechanisms::{Batching, Task, Workload};

pub const SIZES: Sizes = Sizes {
    quick: &[1024],
    standard: &[64, 65536],
    full: &[64, 256, 1024, 4096, 16384, 65536],
    third_party: &[64, 1024, 4096, 65536],
};

/// Short messages, sent in batches.
const BATCHED: Sizes = Sizes {
    quick: &[],
    standard: &[64],
    full: &[64],
    third_party: &[64],
};
const BATCH: usize = 32;

pub fn cases(plan: &Plan) -> Result<Vec<Case>> {
    let wanted = |&(size, placement): &(usize, Placement)| !is_left_out(plan, size, placement);
    let single = plan.conditions(&SIZES).filter(wanted);
    let single = single.map(|(size, placement)| case(plan, size, placement));
    let batched = plan.conditions(&BATCHED);
    let batched = batched.map(|(size, placement)| batched_case(plan, size, placement));
    single.chain(batched).collect()
}

/// To take less time, a standard run has long messages on two processors only, where there are two.
pub(super) fn is_left_out(plan: &Plan, size: usize, placement: Placement) -> bool {
    plan.scale == Scale::Standard
        && plan.sizes.is_empty()
        && placement == Placement::SameCpu
        && plan.placements.contains(&Placement::TwoCpus)
        && size > SIZES.standard[0]
}

fn case(plan: &Plan, size: usize, placement: Placement) -> Result<Case> {
    let title = format!("{} {}", units::size(size), placement.name());
    case_of(plan, title, size, placement, None)
}

/// Mechanisms with a batch interface, and their reference.
fn batched_case(plan: &Plan, size: usize, placement: Placement) -> Result<Case> {
    let (bytes, place) = (units::size(size), placement.name());
    let title = format!("{bytes} in batches of {BATCH} {place}");
    let mut case = case_of(plan, title, size, placement, Some(BATCH))?;
    let batching = |name: &str| {
        let all = plan.mechanisms.iter();
        all.filter(|one| one.name == name)
            .find_map(|one| one.batching)
    };
    case.skipped
        .retain(|skip| batching(skip.mechanism).is_some());
    case.subjects
        .retain(|subject| batching(subject.mechanism).is_some());
    for subject in &mut case.subjects {
        subject.batch = Some(BATCH);
        if batching(subject.mechanism) == Some(Batching::OneByOne) {
            subject.label += ", one by one";
        }
    }
    Ok(case)
}

fn case_of(
    plan: &Plan,
    title: String,
    size: usize,
    placement: Placement,
    batch: Option<usize>,
) -> Result<Case> {
    let task = Task {
        size,
        placement,
        workload: Workload::Stream,
    };
    let length = Length::For(plan.duration);
    let job = |setup: Setup| Stream {
        batch,
        ..Stream::new(setup, length)
    };
    plan.case("throughput", title, Metric::Rate, task, job)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    use crate::mechanisms::sluice_ring::Variant;
    use crate::mechanisms::sluice_ring_memfd;
    use crate::suites::plan::tests::plan;

    #[test]
    fn a_standard_run_has_long_messages_on_two_processors() {
        let mut plan = plan();
        plan.placements = vec![Placement::SameCpu, Placement::TwoCpus];
        let titles = |plan: &Plan| -> Vec<_> {
            let conditions = plan.conditions(&SIZES);
            conditions
                .filter(|&(size, placement)| !is_left_out(plan, size, placement))
                .map(|(size, placement)| format!("{size} {}", placement.name()))
                .collect()
        };
        assert_eq!(
            titles(&plan),
            ["64 same-cpu", "64 two-cpus", "65536 two-cpus"]
        );
        plan.placements.pop();
        assert_eq!(titles(&plan), ["64 same-cpu", "65536 same-cpu"]);
        plan.sizes = vec![65536];
        assert_eq!(titles(&plan), ["65536 same-cpu"]);
    }

    #[test]
    fn batches_are_measured_with_a_batch_interface_and_the_reference() {
        let mut plan = plan();
        let rings = [Variant::NeverSpins, Variant::AlwaysSpins];
        plan.mechanisms
            .extend(rings.map(sluice_ring_memfd::mechanism).map(Rc::new));
        let case = batched_case(&plan, 64, Placement::SameCpu).unwrap();
        assert_eq!(case.title, "64 B in batches of 32 same-cpu");
        let labels: Vec<_> = case.subjects.iter().map(|one| &one.label).collect();
        assert_eq!(
            labels,
            ["pipe, one by one", "sluice-ring-memfd (never spins)"]
        );
        assert!(case.subjects.iter().all(|one| one.batch == Some(BATCH)));
        // It supports batches, but not this placement.
        let skipped: Vec<_> = case.skipped.iter().map(|skip| &skip.label).collect();
        assert_eq!(skipped, ["sluice-ring-memfd (always spins)"]);
    }
}
