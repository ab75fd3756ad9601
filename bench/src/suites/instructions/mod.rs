// SPDX-License-Identifier: MIT OR Apache-2.0
//! Instructions per operation: those that the whole guest executes, of programs and of its kernel, counted by a plugin of
//! QEMU (`vm/run --count`). Unlike emulated times they do not depend on the emulation. How often processes wait for each other does: counts of
//! what takes the same path each time repeat within a percent, those of a stream whose receiver sleeps and spins do not.
//!
//! Each count is that of a fixed number of operations, minus the background: the interrupts of timers and what else the guest
//! does meanwhile, at the rate at which the kernel executes instructions while a process runs a loop of its own.

mod control;
mod counter;
mod operations;

use std::rc::Rc;

use anyhow::Result;
use sluice_testkit::units;

use self::control::{Background, Control, ITERATIONS};
use self::counter::Counter;
use self::operations::{RoundTrips, Stream};
use super::plan::Sizes;
use super::setup::Setup;
use super::{Plan, Scale};
use crate::harness::pinning::Placement;
use crate::harness::rounds::{Case, Job, Metric, Skipped, Subject};
use crate::harness::waiting::Waiting;
use crate::mechanisms::{Task, Workload};
use crate::reports::instructions::{CONTROL, SUITE};

const ROUND_TRIP_SIZES: Sizes = Sizes {
    quick: &[64],
    standard: &[64],
    full: &[64, 4096],
    third_party: &[64],
};
const STREAM_SIZES: Sizes = Sizes {
    quick: &[64],
    standard: &[64, 4096],
    full: &[64, 4096],
    third_party: &[64],
};

/// What a quick run counts, unless others are chosen: the guest that counts is slow.
const QUICK: [&str; 5] = [
    "pipe",
    "unix-stream",
    "sluice-pipe",
    "sluice-ring",
    "eventfd-shm",
];

/// What all counts of a run have in common.
struct Counting {
    counter: Counter,
    background: Background,
}

impl Counting {
    /// None where no instructions are counted.
    fn begin() -> Result<Option<Self>> {
        let Some(counter) = Counter::open()? else {
            return Ok(None);
        };
        let background = Background::measure(&counter)?;
        Ok(Some(Self {
            counter,
            background,
        }))
    }
}

const NOT_HERE: &str = "the instructions of this machine are not counted; 'make bench' counts them in a VM of its own, as does vm/run --count";

pub fn cases(plan: &Plan) -> Result<Vec<Case>> {
    let counting = match Counting::begin() {
        Ok(Some(counting)) => Rc::new(counting),
        Ok(None) => return Ok(vec![not_counted(NOT_HERE.into(), false)]),
        Err(error) => return Ok(vec![not_counted(format!("{error:#}"), true)]),
    };
    let mut cases = vec![control(&counting)];
    for (size, placement) in plan.conditions(&ROUND_TRIP_SIZES) {
        if placement == Placement::SameCpu || plan.scale == Scale::Full {
            cases.push(round_trips(plan, size, placement, &counting)?);
        }
    }
    // On two processors, how often the sides wait for each other depends on their speed, and so does the count.
    for size in plan.sizes_or(&STREAM_SIZES) {
        cases.push(stream(plan, size, &counting)?);
    }
    Ok(cases)
}

/// The only case without a counter.
fn not_counted(reason: String, failed: bool) -> Case {
    Case {
        skipped: vec![Skipped {
            failed,
            ..Skipped::unavailable(CONTROL, reason)
        }],
        ..control_of(Vec::new())
    }
}

fn control_of(subjects: Vec<Subject>) -> Case {
    let title = format!(
        "{} million iterations of two instructions",
        ITERATIONS / 1_000_000
    );
    Case {
        subjects,
        ..Case::new(SUITE, title, Placement::SameCpu, Metric::Instructions)
    }
}

fn control(counting: &Rc<Counting>) -> Case {
    let job = Control(Rc::clone(counting));
    let subject = Subject {
        processes: 1,
        ..Subject::new(CONTROL, CONTROL.into(), Waiting::Sleep, job)
    };
    control_of(vec![subject])
}

fn round_trips(
    plan: &Plan,
    size: usize,
    placement: Placement,
    counting: &Rc<Counting>,
) -> Result<Case> {
    let title = format!("round trip of {} {}", units::size(size), placement.name());
    let task = Task {
        size,
        placement,
        workload: Workload::RequestReply,
    };
    case(plan, title, task, |setup| RoundTrips {
        setup,
        counting: Rc::clone(counting),
    })
}

fn stream(plan: &Plan, size: usize, counting: &Rc<Counting>) -> Result<Case> {
    let placement = Placement::SameCpu;
    let title = format!(
        "message of a stream, {} {}",
        units::size(size),
        placement.name()
    );
    let task = Task {
        size,
        placement,
        workload: Workload::Stream,
    };
    case(plan, title, task, |setup| Stream {
        setup,
        counting: Rc::clone(counting),
    })
}

fn case<J: Job + 'static>(
    plan: &Plan,
    title: String,
    task: Task,
    job: impl Fn(Setup) -> J,
) -> Result<Case> {
    let mut case = plan.case(SUITE, title, Metric::Instructions, task, job)?;
    if plan.scale == Scale::Quick && plan.chosen.is_empty() {
        case = case.only(&QUICK);
    }
    Ok(without_uncountable(case))
}

/// Leaves out, on two processors, mechanisms that spin.
fn without_uncountable(mut case: Case) -> Case {
    if case.placement != Placement::TwoCpus {
        return case;
    }
    let subjects = std::mem::take(&mut case.subjects).into_iter();
    let (spinning, others): (Vec<_>, Vec<_>) =
        subjects.partition(|subject| subject.waiting == Waiting::Spin);
    let skipped = spinning.into_iter().map(|subject| Skipped {
        label: subject.label,
        ..Skipped::unavailable(
            subject.mechanism,
            "it spins while it waits, so the count would depend on time",
        )
    });
    case.skipped.extend(skipped);
    case.subjects = others;
    case
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mechanisms::sluice_ring::Variant;
    use crate::mechanisms::sluice_ring_memfd;
    use crate::suites::plan::tests::plan;

    fn counting() -> Rc<Counting> {
        Rc::new(Counting {
            counter: Counter::at("/nonexistent".into()),
            background: Background::default(),
        })
    }

    #[test]
    fn without_the_plugin_the_suite_is_skipped_with_the_reason() {
        // No test runs in a VM that counts.
        let cases = cases(&plan()).unwrap();
        assert_eq!(cases.len(), 1);
        assert!(cases[0].subjects.is_empty());
        let skip = &cases[0].skipped[0];
        assert!(!skip.failed && skip.reason.contains("vm/run --count"));
    }

    #[test]
    fn on_two_processors_mechanisms_that_spin_are_left_out() {
        let mut plan = plan();
        let rings = [Variant::Default, Variant::NeverSpins].map(sluice_ring_memfd::mechanism);
        plan.mechanisms.extend(rings.map(Rc::new));
        let labels = |placement| {
            let mut case = round_trips(&plan, 64, Placement::SameCpu, &counting()).unwrap();
            case.placement = placement;
            let case = without_uncountable(case);
            let labels = case.subjects.into_iter().map(|subject| subject.label);
            labels.collect::<Vec<_>>()
        };
        assert_eq!(labels(Placement::SameCpu).len(), 3);
        assert_eq!(
            labels(Placement::TwoCpus),
            ["pipe", "sluice-ring-memfd (never spins)"]
        );
    }
}
