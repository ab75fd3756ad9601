// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values of 64 bytes under keys of 16, as in report 5: the rate of gets and sets by several processes, the processor time
//! of a reader beside a writer, and the time of a get, of a batch and of a dump.

pub(super) mod access;
mod bpf;
mod netlink;
pub(super) mod redis;
mod shared_map;
pub(super) mod sluice_map;
pub(super) mod store;

use std::rc::Rc;

use anyhow::Result;

use self::access::Access;
use self::store::{Resources, VALUE_SIZE, Way};
use super::{Plan, Scale};
use crate::harness::pinning::Placement;
use crate::harness::rounds::{Case, Metric, Skipped, Subject};
use crate::harness::waiting::Waiting;
use crate::reports::map::{BATCH, Measured, Operation, PROCESSES, SUITE};

/// The first one that a case has is its reference.
#[rustfmt::skip]
const WAYS: [Way; 7] = [
    Way { name: "shared-map", unavailable: shared_map::unavailable, create: shared_map::create },
    Way { name: "shared-map-rwsem", unavailable: shared_map::unavailable, create: shared_map::create_with_rwsem },
    Way { name: "shared-map-files", unavailable: shared_map::unavailable_files, create: shared_map::create_with_files },
    Way { name: "bpf-map", unavailable: bpf::unavailable, create: bpf::create },
    Way { name: "redis", unavailable: redis::unavailable, create: redis::create },
    Way { name: "sluice-map-fd", unavailable: sluice_map::unavailable, create: sluice_map::create },
    Way { name: "sluice-map-netlink", unavailable: sluice_map::unavailable, create: netlink::create },
];

/// Whose growth with the number of processes the report is about.
const ENDS: [usize; 2] = [2, 10];

pub fn mechanisms() -> Vec<&'static str> {
    WAYS.iter().map(|way| way.name).collect()
}

pub fn cases(plan: &Plan) -> Result<Vec<Case>> {
    if plan.one_placement() == Placement::SameCpu {
        return Ok(vec![unsupported()]);
    }
    let confinement = plan.confinement(Placement::TwoCpus)?;
    let resources = Rc::new(Resources::new(plan.tree.clone(), confinement));
    let measured = measured(plan.scale).into_iter();
    Ok(measured.map(|one| case(plan, &resources, one)).collect())
}

/// What is measured, in the order of the tables.
fn measured(scale: Scale) -> Vec<Measured> {
    let processes = match scale {
        Scale::Quick | Scale::Standard | Scale::ThirdParty => &ENDS[..],
        Scale::Full => &PROCESSES,
    };
    let rates = Operation::ALL.into_iter().flat_map(|operation| {
        processes.iter().map(move |&processes| Measured::Rate {
            operation,
            processes,
        })
    });
    let others = [
        Measured::ReaderCost {
            beside_writer: false,
        },
        Measured::ReaderCost {
            beside_writer: true,
        },
        Measured::Get,
        Measured::Batch,
        Measured::Dump,
    ];
    rates.chain(others).collect()
}

fn case(plan: &Plan, resources: &Rc<Resources>, measured: Measured) -> Case {
    let metric = match measured {
        Measured::Rate { .. } => Metric::Operations,
        Measured::ReaderCost { .. } => Metric::Cost,
        Measured::Get | Measured::Batch | Measured::Dump => Metric::Time,
    };
    let scale = match plan.chosen.is_empty() {
        true => plan.scale,
        false => Scale::Standard,
    };
    let ways = || WAYS.iter().filter(|way| applies(way, measured, scale));
    let reference = ways().next().map(|way| way.name);
    let mut case = Case {
        size: Some(VALUE_SIZE),
        reference,
        ..Case::new(SUITE, measured.title(), Placement::TwoCpus, metric)
    };
    let wanted = |way: &&Way| reference == Some(way.name) || plan.wants(way.name);
    for way in ways().filter(wanted) {
        if let Some(skip) = (way.unavailable)(resources) {
            case.skipped.push(skip.of(way.name));
            continue;
        }
        case.subjects.push(subject(Access {
            way: *way,
            resources: Rc::clone(resources),
            measured,
            duration: plan.duration,
        }));
    }
    case
}

/// A quick run has one operation of each variant of the naive store.
fn is_left_out_of_quick(way: &Way, measured: Measured) -> bool {
    let only = match way.name {
        "shared-map-rwsem" => Operation::GetAndSet,
        "shared-map-files" => Operation::Set,
        _ => return false,
    };
    !matches!(measured, Measured::Rate { operation, .. } if operation == only)
}

/// The gets of the naive store do not use its files. Its semaphore is compared where the report compares, and elsewhere
/// only the stores of the criteria.
fn applies(way: &Way, measured: Measured, scale: Scale) -> bool {
    if scale == Scale::Quick && is_left_out_of_quick(way, measured) {
        return false;
    }
    match (way.name, measured) {
        ("sluice-map-fd", _) => true,
        ("sluice-map-netlink", _) => measured != Measured::Dump,
        ("shared-map", _) => measured != Measured::Dump,
        ("shared-map-rwsem", Measured::Rate { processes, .. }) => ENDS.contains(&processes),
        ("shared-map-rwsem", Measured::ReaderCost { .. }) => true,
        ("shared-map-files", Measured::Rate { operation, .. }) => operation != Operation::Get,
        // Its readers may miss a key that is being updated.
        (
            "bpf-map",
            Measured::Rate {
                operation: Operation::Get | Operation::Set,
                processes,
            },
        ) => ENDS.contains(&processes),
        ("bpf-map", Measured::Get | Measured::Batch | Measured::Dump) => true,
        ("redis", Measured::Get | Measured::Batch) => true,
        _ => false,
    }
}

fn subject(access: Access) -> Subject {
    let name = access.way.name;
    let is_batch = access.measured == Measured::Batch;
    let label = match name {
        "sluice-map-fd" | "sluice-map-netlink" | "redis" => name.into(),
        _ if is_batch => format!("{name}, one by one"),
        _ => name.into(),
    };
    Subject {
        processes: access.processes(),
        operation: match access.measured {
            Measured::Rate { operation, .. } => Some(operation.name()),
            _ => None,
        },
        batch: is_batch.then_some(BATCH),
        ..Subject::new(name, label, Waiting::Sleep, access)
    }
}

fn unsupported() -> Case {
    let reason = "it needs two processors";
    let title = "values under keys".into();
    Case {
        skipped: vec![Skipped::unavailable(SUITE, reason)],
        ..Case::new(SUITE, title, Placement::SameCpu, Metric::Time)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sluice_testkit::workers::serial;

    use super::*;
    use crate::harness::rounds::Job;
    use crate::harness::rows::Row;
    use crate::reports::map::text;
    use crate::suites::plan::tests::plan;
    use crate::suites::setup::Confinement;

    fn resources() -> Rc<Resources> {
        let cpus = Placement::SameCpu.cpus().unwrap().unwrap();
        let confinement = Confinement { cgroup: None, cpus };
        Rc::new(Resources::new(plan().tree, confinement))
    }

    #[test]
    fn every_store_returns_what_was_set() {
        let _serial = serial();
        let resources = resources();
        for way in WAYS {
            if (way.unavailable)(&resources).is_some() {
                continue;
            }
            for measured in measured(Scale::Standard) {
                if !applies(&way, measured, Scale::Standard) {
                    continue;
                }
                let access = Access {
                    way,
                    resources: Rc::clone(&resources),
                    measured,
                    duration: Duration::from_millis(1),
                };
                let context = format!("{} {}", way.name, measured.title());
                access.check().expect(&context);
                let done = access.measure().expect(&context);
                assert!(done.messages > 0 && done.elapsed_ns > 0, "{context}");
                assert!(done.cpu_ns > 0, "{context}");
            }
        }
    }

    #[test]
    fn without_the_module_its_ways_are_skipped_with_the_reason() {
        let plan = Plan {
            placements: vec![Placement::TwoCpus],
            ..plan()
        };
        if Placement::TwoCpus.cpus().unwrap().is_none()
            || shared_map::unavailable(&resources()).is_none()
        {
            return;
        }
        let cases = cases(&plan).unwrap();
        let skipped = |name: &str| {
            let mut skipped = cases.iter().flat_map(|case| &case.skipped);
            skipped.find(|skip| skip.mechanism == name).unwrap()
        };
        assert!(skipped("shared-map-files").reason.contains("--shared-map"));
        assert!(skipped("sluice-map-fd").reason.contains("--module"));
    }

    #[test]
    fn all_criteria_of_the_report_are_measured() {
        let row = |measured: Measured, way: &Way| Row {
            suite: SUITE.into(),
            title: measured.title(),
            mechanism: way.name.into(),
            median: Some(1.0),
            values: Some(vec![(0, 1.0)]),
            ..Row::default()
        };
        for scale in [Scale::Quick, Scale::Standard, Scale::Full] {
            let rows = measured(scale).into_iter().flat_map(|measured| {
                let ways = WAYS.iter().filter(move |way| applies(way, measured, scale));
                ways.map(move |way| row(measured, way))
            });
            let text = text(&rows.collect::<Vec<_>>()).unwrap();
            assert!(text.contains(" met"), "{text}");
            let missing: Vec<_> = text
                .lines()
                .filter(|line| line.contains("not measured"))
                .collect();
            match scale {
                // All that have a limit.
                Scale::Quick => assert!(!missing.concat().contains(['≥', '≤']), "{missing:?}"),
                _ => assert!(missing.is_empty(), "{missing:?}"),
            }
        }
    }

    #[test]
    fn one_processor_is_not_enough() {
        let cases = cases(&plan()).unwrap();
        assert!(cases[0].subjects.is_empty());
        assert!(cases[0].skipped[0].reason.contains("two"));
    }
}
