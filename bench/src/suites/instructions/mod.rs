// SPDX-License-Identifier: MIT OR Apache-2.0
//! Instructions per operation: those that the whole guest executes, of programs and of its kernel, counted by a plugin of QEMU
//! (`vm/run --count`). They do not depend on the emulation, but on how often processes wait for each other: counts of what takes the
//! same path each time repeat within a percent, counts of a stream whose receiver sleeps and spins do not. Each count is of a fixed
//! number of operations, minus the background: what the kernel executes while a process runs a loop of its own.

mod counter;
mod gets;
mod operations;

use std::rc::Rc;

use anyhow::Result;

use self::counter::{Control, Counter, ITERATIONS};
use self::gets::{Gets, KEYS};
use self::operations::Operations;
use super::map;
use super::plan::{Plan, Scale, Sizes, title};
use crate::harness::pinning::Placement;
use crate::harness::rounds::{Case, Metric, Skipped, Subject};
use crate::harness::waiting::Waiting;
use crate::mechanisms::{Task, Workload};

const SUITE: &str = "instructions";
/// The loop whose length is known, in the place of a mechanism.
pub const CONTROL_LOOP: &str = "control-loop";

const ROUND_TRIP_SIZES: Sizes = [&[64], &[64], &[64, 4096], &[64]];
const STREAM_SIZES: Sizes = [&[64], &[64, 4096], &[64, 4096], &[64]];

/// What a quick run counts, unless others are chosen: the guest that counts is slow.
#[rustfmt::skip]
const QUICK: [&str; 5] = ["pipe", "unix-stream", "sluice-pipe", "sluice-ring", "eventfd-shm"];

const NOT_HERE: &str = "the instructions of this machine are not counted; 'make bench' counts them in a VM of its own, as does vm/run --count";

pub fn cases(plan: &Plan) -> Result<Vec<Case>> {
    let millions = ITERATIONS / 1_000_000;
    let title = format!("{millions} million iterations of two instructions");
    let mut control = Case {
        processes: 1,
        ..Case::new(SUITE, title, Placement::SameCpu, Metric::Instructions)
    };
    let counter = match Counter::open() {
        Ok(Some(counter)) => Rc::new(counter),
        not_open => {
            let error = not_open.err();
            let reason = error.as_ref().map(|error| format!("{error:#}"));
            control.skipped.push(Skipped {
                failed: error.is_some(),
                ..Skipped::unavailable(CONTROL_LOOP, reason.unwrap_or(NOT_HERE.into()))
            });
            return Ok(vec![control]);
        }
    };
    let job = Control(Rc::clone(&counter));
    let subject = Subject::new(CONTROL_LOOP, CONTROL_LOOP.into(), Waiting::Sleep, job);
    control.subjects.push(subject);
    let mut cases = vec![control];
    for task in plan.tasks(&ROUND_TRIP_SIZES, Workload::RequestReply) {
        if task.placement == Placement::SameCpu || plan.scale == Scale::Full {
            cases.push(case(plan, task, &counter)?);
        }
    }
    // On two processors, how often the sides wait for each other depends on their speed, and so does the count.
    for size in plan.sizes_or(&STREAM_SIZES) {
        let task = Task {
            size,
            placement: Placement::SameCpu,
            workload: Workload::Stream,
        };
        cases.push(case(plan, task, &counter)?);
    }
    let gets = |store, confinement| Gets {
        store,
        confinement,
        counter: Rc::clone(&counter),
    };
    cases.push(map::counted(plan, SUITE, KEYS, gets)?);
    Ok(cases)
}

fn case(plan: &Plan, task: Task, counter: &Rc<Counter>) -> Result<Case> {
    let title = match task.workload {
        Workload::RequestReply => format!("round trip of {}", title(&task, "")),
        _ => format!("message of a stream, {}", title(&task, "")),
    };
    let job = |setup| Operations {
        setup,
        workload: task.workload,
        counter: Rc::clone(counter),
    };
    let mut case = plan.case(SUITE, title, Metric::Instructions, task, job)?;
    if plan.scale == Scale::Quick && plan.chosen.is_empty() {
        case = case.only(&QUICK);
    }
    Ok(match task.placement {
        Placement::SameCpu => case,
        Placement::TwoCpus => without_spinning(case),
    })
}

fn without_spinning(mut case: Case) -> Case {
    let reason = "it spins while it waits, so the count would depend on time";
    for subject in std::mem::take(&mut case.subjects) {
        match subject.waiting {
            Waiting::Sleep => case.subjects.push(subject),
            Waiting::Spin => case.skipped.push(Skipped {
                label: subject.label,
                ..Skipped::unavailable(subject.mechanism, reason)
            }),
        }
    }
    case
}
