// SPDX-License-Identifier: MIT OR Apache-2.0
//! The adapters of third-party libraries against the libraries' own programs, in the same rounds: what the interface that
//! all mechanisms share here costs a library. The first subject of a case is the library's own program, so the ratio is
//! taken within each round.

mod redis;

use std::rc::Rc;
use std::time::Duration;

use anyhow::{Result, ensure};
use sluice_testkit::units;

use super::Plan;
use super::plan::subject;
use super::rtt::{self, RoundTrip};
use super::setup::{self, PROCESS_TIMEOUT, Setup};
use super::stream::{Length, Stream};
use super::throughput;
use crate::harness::rounds::{Case, Job, Measurement, Metric, Subject};
use crate::harness::rows::{Calibration, Row};
use crate::mechanisms::own_program::{OwnProgram, Run, Shape};
use crate::mechanisms::{Mechanism, Task, Workload};
use crate::reports::map::Measured;

pub const SUITE: &str = "calibration";
/// An adapter that reaches less of the speed of its library's own program is explained.
const ENOUGH: f64 = 0.9;
/// The end of the label of a library's own program.
const OWN: &str = ", own program";
/// Round trips of a check.
const CHECKED: usize = 64;
const CHECK_DURATION: Duration = Duration::from_millis(5);

pub fn cases(plan: &Plan) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    let shapes = [
        (rtt::SIZES, Workload::RequestReply),
        (throughput::SIZES, Workload::Stream),
    ];
    for (sizes, workload) in shapes {
        for (size, placement) in plan.conditions(&sizes) {
            if workload == Workload::Stream && throughput::is_left_out(plan, size, placement) {
                continue;
            }
            let task = Task {
                size,
                placement,
                workload,
            };
            for mechanism in &plan.mechanisms {
                cases.extend(case(plan, mechanism, task)?);
            }
        }
    }
    cases.extend(redis::case(plan)?);
    Ok(cases)
}

/// None for a mechanism without a library, and for a task that it does not support.
fn case(plan: &Plan, mechanism: &Rc<Mechanism>, task: Task) -> Result<Option<Case>> {
    let Some(program) = &mechanism.own_program else {
        return Ok(None);
    };
    if mechanism.unsupported_reason(&task).is_some() {
        return Ok(None);
    }
    let setup = Setup {
        mechanism: Rc::clone(mechanism),
        confinement: plan.confinement(task.placement)?,
        size: task.size,
    };
    let duration = plan.duration;
    let own = Own {
        program: Rc::clone(program),
        setup: setup.clone(),
        workload: task.workload,
        duration,
    };
    let own = Subject {
        label: format!("{}{OWN}", mechanism.name),
        ..subject(mechanism, own)
    };
    let adapter = match task.workload {
        Workload::RequestReply => subject(mechanism, RoundTrip::new(setup, duration)),
        _ => {
            let length = Length::For(duration);
            subject(mechanism, Stream::new(setup, length))
        }
    };
    let metric = match task.workload {
        Workload::RequestReply => Metric::Latency,
        _ => Metric::Rate,
    };
    let title = title(mechanism.name, task);
    Ok(Some(Case {
        size: Some(task.size),
        subjects: vec![own, adapter],
        ..Case::new(SUITE, title, task.placement, metric)
    }))
}

fn title(name: &str, task: Task) -> String {
    let what = match task.workload {
        Workload::RequestReply => "round trips",
        _ => "streams",
    };
    let (bytes, place) = (units::size(task.size), task.placement.name());
    format!("{name} {what} {bytes} {place}")
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
            Shape::RoundTrips { .. } => rtt::measurement(first, &second, self.setup.size),
            Shape::Stream => self.stream(&first, &second),
        }
    }

    fn stream(&self, first: &[u64], second: &[u64]) -> Result<Measurement> {
        let [sent, begin, sender_cpu] = first.try_into()?;
        let [received, end, receiver_cpu]: [u64; 3] = second.try_into()?;
        ensure!(
            sent == received,
            "{sent} messages were sent, and {received} arrived"
        );
        Ok(Measurement {
            messages: sent,
            bytes: sent * self.setup.size as u64,
            elapsed_ns: end.saturating_sub(begin),
            cpu_ns: sender_cpu + receiver_cpu,
            ..Measurement::default()
        })
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

/// Adds to the rows of the suites rtt and throughput, of gets from Redis, and of this suite, how fast their adapters were here.
pub fn annotate(rows: &mut [Row]) {
    let calibrated: Vec<(Row, Calibration)> = rows
        .iter()
        .filter_map(|row| Some((row.clone(), calibration(row)?)))
        .collect();
    for row in rows.iter_mut().filter(|row| row.batch.is_none()) {
        let same = |(other, _): &&(Row, Calibration)| {
            other.label == row.label
                && other.placement == row.placement
                && other.size == row.size
                && match row.suite.as_str() {
                    "rtt" | "throughput" => other.unit == row.unit,
                    "map" => row.title == Measured::Get.title(),
                    suite => suite == SUITE && other.title == row.title,
                }
        };
        let found = calibrated.iter().find(same);
        row.calibration = found.map(|(other, calibration)| beside(row, other, calibration));
    }
}

/// The calibration of one row, for another one: it says if it was measured at another distance.
fn beside(row: &Row, calibrated: &Row, calibration: &Calibration) -> Calibration {
    let measured = match (row.probe_class, calibrated.probe_class) {
        (Some(here), Some(there)) if here != there => {
            format!("measured at the distance {}", there.name())
        }
        _ => return calibration.clone(),
    };
    let reason = match &calibration.reason {
        Some(reason) => format!("{measured}; {reason}"),
        None => measured,
    };
    Calibration {
        reason: Some(reason),
        ..calibration.clone()
    }
}

/// The speed of an adapter divided by that of its library's own program, from a row of this suite.
fn calibration(row: &Row) -> Option<Calibration> {
    let ratio = row.ratio.as_ref().filter(|_| row.suite == SUITE)?;
    let faster = |ratio: f64| match row.less_is_better() {
        true => 1.0 / ratio,
        false => ratio,
    };
    let (one, other) = (faster(ratio.min), faster(ratio.max));
    let median = faster(ratio.median);
    Some(Calibration {
        to: ratio.to.clone(),
        median,
        min: one.min(other),
        max: one.max(other),
        reason: (median < ENOUGH).then(|| reason(&row.mechanism, row.less_is_better()).to_string()),
    })
}

/// Why an adapter may be slower than the library's own program.
fn reason(mechanism: &str, is_round_trip: bool) -> &'static str {
    match (mechanism, is_round_trip) {
        ("iceoryx2", true) => {
            "the library's benchmark neither writes nor reads the bytes of its messages; the adapter does both"
        }
        ("iceoryx2", false) => {
            "the library's examples look at a message in place; the adapter copies it out, as for all mechanisms"
        }
        ("tachyon", true) => {
            "the library's benchmark copies a message once on each way; the adapter copies it out as well"
        }
        ("tachyon", false) => {
            "the library's introduction does not look at the bytes of a message; the adapter copies them out, and its ring has 4 MiB instead of 16"
        }
        ("aeron", true) => "the library's sample does not copy the reply; the adapter does",
        ("aeron", false) => {
            "the library's sample counts fragments without looking at them; the adapter copies each message out"
        }
        ("zeromq", true) => "the adapter has one socket for each direction",
        _ => "not explained",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::class::Class;
    use crate::harness::pinning::Placement;
    use crate::harness::rows::Ratio;
    use crate::mechanisms::Registry;
    use crate::suites::plan::tests::plan;
    use sluice_testkit::workers::serial;

    fn calibrated_plan() -> Plan {
        let skip = crate::harness::rounds::Skipped::unavailable("sluice-pipe", "a unit test");
        Plan {
            mechanisms: Registry::new(&Err(skip)).with_third_party().available,
            // The longer one has several fragments in Aeron.
            sizes: vec![64, 65_536],
            placements: [Placement::SameCpu, Placement::TwoCpus]
                .into_iter()
                .filter(|one| one.cpus().unwrap().is_some())
                .collect(),
            ..plan()
        }
    }

    #[test]
    fn the_own_program_of_every_library_delivers_all_messages() {
        let _serial = serial();
        let mut cases = cases(&calibrated_plan()).unwrap();
        cases.retain(|case| case.metric != Metric::Operations);
        for case in &cases {
            let [own, adapter] = &case.subjects[..] else {
                panic!("{} has {} subjects", case.title, case.subjects.len());
            };
            assert_ne!(own.label, adapter.label);
            let checked = own.job.check().and_then(|()| own.job.measure());
            let measurement = checked.unwrap_or_else(|error| panic!("{}: {error:#}", case.title));
            assert!(measurement.elapsed_ns > 0, "{}", case.title);
            assert_eq!(
                measurement.samples.is_empty(),
                case.metric == Metric::Rate,
                "{}",
                case.title
            );
        }
        // ZeroMQ, which is loaded when it is there, in round trips and in streams.
        assert!(cases.len() >= 2);
    }

    fn row(suite: &str, label: &str, unit: &str, ratio: Option<f64>) -> Row {
        let ratio = ratio.map(|median| Ratio {
            to: "own".into(),
            across_waiting: false,
            median,
            min: median * 0.8,
            max: median * 1.25,
            common_rounds: None,
        });
        Row {
            suite: suite.into(),
            mechanism: "tachyon".into(),
            label: label.into(),
            unit: Some(unit.into()),
            size: Some(64),
            ratio,
            ..Row::default()
        }
    }

    #[test]
    fn a_calibration_at_another_distance_says_so() {
        let at = |class, one: Row| Row {
            probe_class: Some(class),
            ..one
        };
        let mut rows = [
            at(Class::Remote, row(SUITE, "tachyon", "ns", Some(2.0))),
            at(Class::SharedCache, row("rtt", "tachyon", "ns", None)),
        ];
        annotate(&mut rows);
        let reason = |row: &Row| row.calibration.clone().and_then(|one| one.reason);
        let (alike, other) = (reason(&rows[0]).unwrap(), reason(&rows[1]).unwrap());
        assert_eq!(other, format!("measured at the distance far; {alike}"));
    }

    #[test]
    fn a_slower_adapter_has_less_than_one_and_a_reason() {
        let slower = calibration(&row(SUITE, "tachyon", "ns", Some(1.25))).unwrap();
        assert!((slower.median - 0.8).abs() < 1e-9);
        assert!(slower.min < slower.median && slower.median < slower.max);
        assert!(slower.reason.unwrap().contains("copies"));
        let slower = calibration(&row(SUITE, "tachyon", "bytes/s", Some(0.8))).unwrap();
        assert!((slower.median - 0.8).abs() < 1e-9 && slower.reason.is_some());
        let equal = calibration(&row(SUITE, "tachyon", "ns", Some(1.0))).unwrap();
        assert_eq!(equal.reason, None);
        assert_eq!(calibration(&row("rtt", "tachyon", "ns", Some(1.25))), None);
    }

    #[test]
    fn rows_of_the_same_conditions_are_calibrated() {
        let mut rows = vec![
            row("rtt", "tachyon (spins)", "ns", Some(0.1)),
            row("rtt", "tachyon (futex)", "ns", Some(0.1)),
            row("throughput", "tachyon (spins)", "bytes/s", Some(9.0)),
            row(SUITE, "tachyon, own program", "ns", None),
            row(SUITE, "tachyon (spins)", "ns", Some(1.25)),
        ];
        annotate(&mut rows);
        let calibrated: Vec<bool> = rows.iter().map(|row| row.calibration.is_some()).collect();
        assert_eq!(calibrated, [true, false, false, false, true]);
    }
}
