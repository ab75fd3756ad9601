// SPDX-License-Identifier: MIT OR Apache-2.0
//! The adapters of third-party libraries against the libraries' own programs, in the same rounds: what the interface that
//! all mechanisms share here costs a library. The first subject of a case is the library's own program, so the ratio is
//! taken within each round.

mod annotate;
mod redis;

use std::rc::Rc;
use std::time::Duration;

use anyhow::{Result, ensure};
use sluice_testkit::units;

use super::plan::{Plan, subject};
use super::rtt::{self, RoundTrip};
use super::setup::{self, PROCESS_TIMEOUT, Setup};
use super::stream::{Length, Stream};
use super::throughput;
use crate::harness::rounds::{Case, Job, Measurement, Metric, Subject};
use crate::mechanisms::own_program::{OwnProgram, Run, Shape};
use crate::mechanisms::{Mechanism, Task, Workload};

use annotate::{OWN, SUITE};

pub use annotate::annotate;

/// Round trips of a check.
const CHECKED: usize = 64;
const CHECK_DURATION: Duration = Duration::from_millis(5);

pub fn cases(plan: &Plan) -> Result<Vec<Case>> {
    let round_trips = plan.tasks(&rtt::SIZES, Workload::RequestReply);
    let streams = plan.tasks(&throughput::SIZES, Workload::Stream);
    let streams = streams.filter(|task| !throughput::is_left_out(plan, task));
    let mut cases = Vec::new();
    for task in round_trips.chain(streams) {
        for mechanism in &plan.mechanisms {
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
    let (bytes, place) = (units::size(task.size), task.placement.name());
    let title = format!("{} {what} {bytes} {place}", mechanism.name);
    Ok(Some(Case {
        size: Some(task.size),
        subjects: vec![own, adapter],
        ..Case::new(SUITE, title, task.placement, metric)
    }))
}

/// A library's own program.
struct Own {
    program: Rc<dyn OwnProgram>,
    /// Of the adapter, for the processors.
    setup: Setup,
    workload: Workload,
    duration: Duration,
}

impl Own {
    fn run(&self, max: usize, duration: Duration) -> Result<Measurement> {
        let run = Run {
            size: self.setup.size,
            shape: match self.workload {
                Workload::RequestReply => Shape::RoundTrips { max },
                _ => Shape::Stream,
            },
            duration,
            timeout: PROCESS_TIMEOUT,
            enter: &|side| self.setup.enter(side),
        };
        let pair = self.program.start(&run)?;
        let [first, second] = setup::run(pair, duration + PROCESS_TIMEOUT)?;
        match run.shape {
            Shape::RoundTrips { .. } => rtt::measurement(first, &second, run.size),
            Shape::Stream => stream(&first, &second, run.size),
        }
    }
}

fn stream(first: &[u64], second: &[u64], size: usize) -> Result<Measurement> {
    let [sent, begin, sender_cpu] = first.try_into()?;
    let [received, end, receiver_cpu]: [u64; 3] = second.try_into()?;
    ensure!(
        sent == received,
        "{sent} messages were sent, and {received} arrived"
    );
    Ok(Measurement {
        messages: sent,
        bytes: sent * size as u64,
        elapsed_ns: end.saturating_sub(begin),
        cpu_ns: sender_cpu + receiver_cpu,
        ..Measurement::default()
    })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::pinning::Placement;
    use crate::harness::rounds::Skipped;
    use crate::mechanisms::registry::Registry;
    use crate::suites::plan::tests::plan;
    use sluice_testkit::workers::serial;

    #[test]
    fn the_own_program_of_every_library_delivers_all_messages() {
        let _serial = serial();
        let skip = Skipped::unavailable("sluice-pipe", "a unit test");
        let plan = Plan {
            mechanisms: Registry::new(&Err(skip)).with_third_party().available,
            // The longer one has several fragments in Aeron.
            sizes: vec![64, 65_536],
            placements: [Placement::SameCpu, Placement::TwoCpus]
                .into_iter()
                .filter(|one| one.cpus().unwrap().is_some())
                .collect(),
            ..plan()
        };
        let mut cases = cases(&plan).unwrap();
        cases.retain(|case| case.metric != Metric::Operations);
        for case in &cases {
            let title = &case.title;
            let [own, adapter] = &case.subjects[..] else {
                panic!("{title} has {} subjects", case.subjects.len());
            };
            assert_ne!(own.label, adapter.label);
            let checked = own.job.check().and_then(|()| own.job.measure());
            let measurement = checked.unwrap_or_else(|error| panic!("{title}: {error:#}"));
            assert!(measurement.elapsed_ns > 0, "{title}");
            let is_stream = case.metric == Metric::Rate;
            assert_eq!(measurement.samples.is_empty(), is_stream, "{title}");
        }
        // ZeroMQ, which is loaded when it is there, in round trips and in streams.
        assert!(cases.len() >= 2);
    }
}
