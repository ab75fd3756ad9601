// SPDX-License-Identifier: MIT OR Apache-2.0
//! Streaming throughput for each message size; and of messages from 8 bytes to 1 MiB, whose data the programs touch or not. In both
//! cases the message is copied into the mechanism and out of it, as for all mechanisms. Those that have an interface for it are
//! measured a third time, with messages that are written and read in place: beside the touched ones, this shows from which size on
//! the two copies matter.

use anyhow::Result;

use super::plan::{Plan, Scale, Sizes, title};
use super::setup::Setup;
use super::stream::{Data, Length, Stream};
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
const BATCHED: Sizes = [&[], &[SHORT], &[SHORT], &[SHORT]];
const BATCH: usize = 32;

const ALL: &[usize] = &[8, 64, 512, 4096, 32_768, 262_144, 1_048_576];
const TOUCHED_SIZES: Sizes = [&[64, 65_536], ALL, ALL, ALL];
const DATA: [(&str, Data, Workload); 3] = [
    ("untouched", Data::Untouched, Workload::Stream),
    ("touched", Data::Touched, Workload::Stream),
    ("in place", Data::InPlace, Workload::InPlace),
];

pub fn cases(plan: &Plan) -> Result<Vec<Case>> {
    let single = plan.tasks(&SIZES, Workload::Stream);
    let single = single.filter(|task| !is_left_out(plan, task));
    let single = single.map(|task| {
        let title = title(&task, "");
        plan.case("throughput", title, Metric::Rate, task, |setup| {
            stream(plan, setup)
        })
    });
    let batched = plan.tasks(&BATCHED, Workload::Stream);
    let batched = batched.map(|task| batched_case(plan, task));
    single.chain(batched).collect()
}

pub fn sizes(plan: &Plan) -> Result<Vec<Case>> {
    let sizes = plan.sizes_or(&TOUCHED_SIZES).into_iter();
    let conditions = sizes.flat_map(|size| DATA.map(|data| (size, data)));
    let case = |(size, (name, data, workload))| {
        let task = plan.task(size, workload);
        let job = |setup| Stream {
            data,
            ..stream(plan, setup)
        };
        let case = plan.case("sizes", title(&task, name), Metric::Rate, task, job)?;
        Ok(case.axis("data", name))
    };
    conditions.map(case).collect()
}

/// To take less time, a standard run has long messages on two processors only, where there are two.
pub(super) fn is_left_out(plan: &Plan, task: &Task) -> bool {
    plan.scale == Scale::Standard
        && plan.sizes.is_empty()
        && task.placement == Placement::SameCpu
        && plan.placements.contains(&Placement::TwoCpus)
        && task.size > SHORT
}

fn stream(plan: &Plan, setup: Setup) -> Stream {
    Stream::new(setup, Length::For(plan.duration))
}

/// Mechanisms with a batch interface, and their reference.
fn batched_case(plan: &Plan, task: Task) -> Result<Case> {
    let title = title(&task, &format!("in batches of {BATCH}"));
    let job = |setup| Stream {
        batch: Some(BATCH),
        ..stream(plan, setup)
    };
    let case = plan.case("throughput", title, Metric::Rate, task, job)?;
    let mechanisms = plan.registry.available.iter();
    let batching = mechanisms.filter_map(|one| Some((one.name, one.batching?)));
    let batching: Vec<(&str, Batching)> = batching.collect();
    let names: Vec<&str> = batching.iter().map(|(name, _)| *name).collect();
    let mut case = case.axis("batch", BATCH).only(&names);
    for subject in &mut case.subjects {
        if batching.contains(&(subject.mechanism, Batching::OneByOne)) {
            subject.label += ", one by one";
        }
    }
    Ok(case)
}
