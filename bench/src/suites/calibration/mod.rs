// SPDX-License-Identifier: MIT OR Apache-2.0
//! The adapters of third-party libraries against the libraries' own programs, in the same rounds: what the interface that
//! all mechanisms share here costs a library. The first subject of a case is the library's own program, so the ratio is
//! taken within each round.

mod annotate;
mod redis;

use std::rc::Rc;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::plan::{Plan, subject, title};
use super::rtt::{self, RoundTrip};
use super::setup::{PROCESS_TIMEOUT, Setup};
use super::stream::{self, Length, Stream};
use super::throughput;
use crate::harness::rounds::{Case, Job, Measurement, Metric, Subject};
use crate::mechanisms::own_program::{OwnProgram, Run};
use crate::mechanisms::{Mechanism, Task, Workload};

use annotate::{OWN, SUITE};

pub use annotate::annotate;

const CHECKED: usize = 64;
const CHECK_DURATION: Duration = Duration::from_millis(5);

pub fn cases(plan: &Plan) -> Result<Vec<Case>> {
    let round_trips = plan.tasks(&rtt::SIZES, Workload::RequestReply);
    let streams = plan.tasks(&throughput::SIZES, Workload::Stream);
    let streams = streams.filter(|task| !throughput::is_left_out(plan, task));
    let mut cases = Vec::new();
    for task in round_trips.chain(streams) {
        for mechanism in &plan.registry.available {
            cases.extend(case(plan, mechanism, task)?);
        }
    }
    cases.extend(redis::case(plan)?);
    Ok(cases)
}

/// None for a mechanism without a library, and for a task that it does not support.
fn case(plan: &Plan, mechanism: &Rc<Mechanism>, task: Task) -> Result<Option<Case>> {
    let program = mechanism.own_program.clone();
    let is_supported = mechanism.unsupported_reason(&task).is_none();
    let Some(program) = program.filter(|_| is_supported) else {
        return Ok(None);
    };
    let setup = plan.setup(Rc::clone(mechanism), &task)?;
    let duration = plan.duration;
    let own = Own {
        program,
        setup: setup.clone(),
        workload: task.workload,
        duration,
    };
    let own = Subject {
        label: format!("{}{OWN}", mechanism.name),
        ..subject(mechanism, own)
    };
    let (what, metric, adapter) = match task.workload {
        Workload::RequestReply => {
            let job = RoundTrip::new(setup, duration);
            ("round trips", Metric::Latency, subject(mechanism, job))
        }
        _ => {
            let job = Stream::new(setup, Length::For(duration));
            ("streams", Metric::Rate, subject(mechanism, job))
        }
    };
    let title = format!("{} {what} {}", mechanism.name, title(&task, ""));
    Ok(Some(Case {
        size: Some(task.size),
        subjects: vec![own, adapter],
        ..Case::new(SUITE, title, task.placement, metric)
    }))
}

struct Own {
    program: OwnProgram,
    /// Of the adapter, for the processors.
    setup: Setup,
    workload: Workload,
    duration: Duration,
}

impl Own {
    fn run(&self, max: usize, duration: Duration) -> Result<Measurement> {
        let size = self.setup.size;
        let round_trips = (self.workload == Workload::RequestReply).then_some(max);
        let mut pair = (self.program)(&Run {
            size,
            round_trips,
            duration,
            timeout: PROCESS_TIMEOUT,
            enter: &|side| self.setup.enter(side),
        })?;
        pair.go()?;
        let [first, second] = pair.finish(duration + PROCESS_TIMEOUT)?;
        match round_trips {
            Some(_) => rtt::measurement(first, &second, size),
            None => stream::measurement(&first, &second, size),
        }
    }
}

impl Job for Own {
    /// That all messages arrive; a program in the style of a library does not look at every byte.
    fn check(&self) -> Result<()> {
        let measurement = self.run(CHECKED, CHECK_DURATION)?;
        ensure!(measurement.messages > 0, "no message arrived");
        Ok(())
    }

    fn measure(&self) -> Result<Measurement> {
        self.run(rtt::MAX_SAMPLES, self.duration)
    }
}
