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
pub(super) mod suite;

use std::rc::Rc;

use anyhow::Result;

use self::access::{BATCH, Kind, Process};
use self::store::Resources;
use self::suite::{ENDS, Suite, Way, without_two_cpus};
use super::plan::{Plan, Scale};
use crate::harness::pinning::Placement;
use crate::harness::rounds::{Case, Metric};

/// As in the report.
pub const PROCESSES: [usize; 6] = [1, 2, 4, 6, 8, 10];
const FD: &str = "sluice-map-fd";
const NETLINK: &str = "sluice-map-netlink";

/// The first one that a case has is its reference.
#[rustfmt::skip]
static WAYS: [Way<Resources>; 7] = [
    Way { name: "shared-map", unavailable: shared_map::unavailable, create: |keys, _| shared_map::create(keys, false, false) },
    Way { name: "shared-map-rwsem", unavailable: shared_map::unavailable, create: |keys, _| shared_map::create(keys, true, false) },
    Way { name: "shared-map-files", unavailable: shared_map::unavailable_files, create: |keys, _| shared_map::create(keys, false, true) },
    Way { name: "bpf-map", unavailable: bpf::unavailable, create: bpf::create },
    Way { name: "redis", unavailable: |_| redis::missing(), create: redis::create },
    Way { name: FD, unavailable: sluice_map::unavailable, create: sluice_map::create },
    Way { name: NETLINK, unavailable: sluice_map::unavailable, create: netlink::create },
];

pub const GET: Kind = Kind {
    name: "a get",
    metric: Metric::Time,
    keys: 1000,
    checked: 100,
    warm_up: 64,
    step: Process::get_one_by_one,
    neighbour: None,
    has_samples: false,
    batch: None,
    mechanisms: &[FD, NETLINK, "shared-map", "bpf-map", "redis"],
    longer: &[],
    labels: &[],
};

/// In the order of the tables. The gets of the naive store do not use its files. Its semaphore is compared where the report
/// compares. Readers of bpf-map may miss a key that is being updated.
#[rustfmt::skip]
static KINDS: [Kind; 8] = [
    Kind { name: "gets", metric: Metric::Operations, step: Process::get_next,
        mechanisms: &[FD, NETLINK, "shared-map", "bpf-map"], longer: &["shared-map-rwsem"], ..GET },
    Kind { name: "sets", metric: Metric::Operations, step: Process::set_next,
        mechanisms: &[FD, NETLINK, "shared-map", "bpf-map", "shared-map-files"], longer: &["shared-map-rwsem"], ..GET },
    Kind { name: "gets and sets", metric: Metric::Operations, step: Process::get_and_set_next,
        mechanisms: &[FD, NETLINK, "shared-map", "shared-map-rwsem"], longer: &["shared-map-files"], ..GET },
    Kind { name: "processor time of a get, beside other work", metric: Metric::Cost, neighbour: Some(Process::write_to_nothing),
        mechanisms: &[FD, NETLINK, "shared-map"], longer: &["shared-map-rwsem"], ..GET },
    Kind { name: "processor time of a get, beside a writer", metric: Metric::Cost, neighbour: Some(Process::set_next),
        mechanisms: &[FD, NETLINK, "shared-map"], longer: &["shared-map-rwsem"], ..GET },
    GET,
    Kind { name: "one of 64 gets", step: Process::get_batch, batch: Some(BATCH),
        labels: &[("shared-map", "shared-map, one by one"), ("bpf-map", "bpf-map, one by one")], ..GET },
    // A dump is long enough without a warm-up.
    Kind { name: "a key of a dump", keys: 10_000, warm_up: 0, step: Process::dump, mechanisms: &[FD, "bpf-map"], ..GET },
];

pub fn mechanisms() -> Vec<&'static str> {
    WAYS.iter().map(|way| way.name).collect()
}

pub fn cases(plan: &Plan) -> Result<Vec<Case>> {
    if let Some(case) = without_two_cpus(plan, "map", ("values under keys", Metric::Time)) {
        return Ok(vec![case]);
    }
    let suite = suite(plan, Placement::TwoCpus)?;
    let counts = match plan.scale {
        Scale::Quick | Scale::Standard | Scale::ThirdParty => &ENDS[..],
        Scale::Full => &PROCESSES,
    };
    let mut cases = Vec::new();
    for kind in &KINDS {
        match kind.metric {
            Metric::Operations => {
                cases.extend(counts.iter().map(|count| suite.case(kind, Some(*count))));
            }
            _ => cases.push(suite.case(kind, None)),
        }
    }
    Ok(cases)
}

impl suite::Resources for Resources {}

fn suite(plan: &Plan, placement: Placement) -> Result<Suite<'_, Resources>> {
    let confinement = plan.confinement(placement)?;
    let resources = Resources::new(plan.tree.clone(), confinement.clone());
    Ok(Suite {
        name: "map",
        plan,
        confinement,
        duration: plan.duration,
        ways: &WAYS,
        resources: Rc::new(resources),
    })
}

#[cfg(test)]
mod tests {
    use sluice_testkit::workers::serial;

    use super::*;
    use crate::harness::rounds::Job;
    use crate::suites::plan::tests::plan;

    #[test]
    fn every_store_returns_what_was_set() {
        let _serial = serial();
        let plan = plan();
        let suite = suite(&plan, Placement::SameCpu).unwrap();
        for kind in &KINDS {
            let processes = (kind.metric == Metric::Operations).then_some(2);
            let ways = suite.ways_of(kind, processes);
            for way in ways.filter(|way| (way.unavailable)(&suite.resources).is_none()) {
                let context = format!("{} {}", way.name, kind.name);
                let access = suite.access(way, kind, processes);
                access.check().expect(&context);
                let done = access.measure().expect(&context);
                assert!(done.messages > 0 && done.elapsed_ns > 0, "{context}");
                assert!(done.cpu_ns > 0, "{context}");
            }
        }
    }
}
