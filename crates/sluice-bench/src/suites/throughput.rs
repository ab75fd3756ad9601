// SPDX-License-Identifier: MIT OR Apache-2.0
//! Streaming throughput for each message size.

use std::rc::Rc;

use anyhow::Result;
use sluice_testkit::units;

use super::stream::{Length, Stream};
use super::{Confinement, Plan, Sizes};
use crate::harness::pinning::Placement;
use crate::harness::rounds::{Case, Job, Measurement, Metric, Skipped, Subject};
use crate::mechanisms::{Batching, Mechanism, Task, Workload};

const SIZES: Sizes = Sizes {
    quick: &[1024],
    standard: &[64, 1024, 4096, 65536],
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
    let single = plan.conditions(&SIZES);
    let single = single.map(|(size, placement)| case(plan, size, placement));
    let batched = plan.conditions(&BATCHED);
    let batched = batched.map(|(size, placement)| batched_case(plan, size, placement));
    single.chain(batched).collect()
}

fn case(plan: &Plan, size: usize, placement: Placement) -> Result<Case> {
    let (mechanisms, skipped) = plan.mechanisms_for(&task(size, placement));
    let confinement = plan.confinement(placement)?;
    let subject = |mechanism: Rc<dyn Mechanism>| {
        let job = stream(plan, &mechanism, &confinement, size, None);
        Subject::pair(&*mechanism, Box::new(job))
    };
    Ok(Case {
        suite: "throughput",
        title: format!("{} {}", units::size(size), placement.name()),
        size: Some(size),
        placement,
        metric: Metric::Rate,
        subjects: mechanisms.into_iter().map(subject).collect(),
        skipped,
    })
}

/// Mechanisms with a batch interface, and their reference.
fn batched_case(plan: &Plan, size: usize, placement: Placement) -> Result<Case> {
    let (mechanisms, mut skipped) = plan.mechanisms_for(&task(size, placement));
    let confinement = plan.confinement(placement)?;
    let subject = |mechanism: Rc<dyn Mechanism>| {
        let label = match mechanism.batching()? {
            Batching::Together => mechanism.label(),
            Batching::OneByOne => format!("{}, one by one", mechanism.label()),
        };
        let job = stream(plan, &mechanism, &confinement, size, Some(BATCH));
        Some(Subject {
            label,
            batch: Some(BATCH),
            ..Subject::pair(&*mechanism, Box::new(job))
        })
    };
    let has_batching = |skip: &Skipped| {
        let mut all = plan.mechanisms.iter();
        all.any(|one| one.name() == skip.mechanism && one.batching().is_some())
    };
    skipped.retain(has_batching);
    Ok(Case {
        suite: "throughput",
        title: format!(
            "{} in batches of {BATCH} {}",
            units::size(size),
            placement.name()
        ),
        size: Some(size),
        placement,
        metric: Metric::Rate,
        subjects: mechanisms.into_iter().filter_map(subject).collect(),
        skipped,
    })
}

fn task(size: usize, placement: Placement) -> Task {
    Task {
        size,
        placement,
        workload: Workload::Stream,
    }
}

fn stream(
    plan: &Plan,
    mechanism: &Rc<dyn Mechanism>,
    confinement: &Confinement,
    size: usize,
    batch: Option<usize>,
) -> Stream {
    Stream {
        mechanism: Rc::clone(mechanism),
        confinement: confinement.clone(),
        size,
        batch,
        length: Length::For(plan.duration),
    }
}

impl Job for Stream {
    fn check(&self) -> Result<()> {
        Stream::check(self)
    }

    fn measure(&self) -> Result<Measurement> {
        Stream::measure(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mechanisms::{CachelinePingPong, Pipe, SluiceRing};
    use crate::suites::rtt;

    #[test]
    fn batches_are_measured_with_a_batch_interface_and_the_reference() {
        let plan = Plan {
            mechanisms: vec![
                Rc::new(Pipe),
                Rc::new(CachelinePingPong::SHARED),
                Rc::new(SluiceRing::NeverSpins),
                Rc::new(SluiceRing::AlwaysSpins),
            ],
            ..rtt::tests::plan()
        };
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
