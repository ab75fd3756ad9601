// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values of 64 bytes under keys of 16, as in report 5: the rate of gets and sets by several processes, the processor time
//! of a reader beside a writer, and the time of a get, of a batch and of a dump.

pub(super) mod access;
mod bpf;
mod lmdb;
mod lower_bounds;
mod netlink;
pub(super) mod redis;
mod shared_map;
pub(super) mod sluice_map;
mod sluice_mapped;
pub(super) mod store;
mod table;

use std::rc::Rc;
use std::time::Duration;

use anyhow::Result;

use self::access::{Access, BATCH, Kind, Process};
use self::store::{Store, StoreResources, VALUE_SIZE};
use super::plan::{Plan, Scale, without_two_cpus};
use super::setup::Confinement;
use crate::harness::pinning::Placement;
use crate::harness::rounds::{Case, Job, Metric, Skipped, Subject};
use crate::harness::waiting::Waiting;

/// As in the report.
pub const PROCESSES: [usize; 6] = [1, 2, 4, 6, 8, 10];
/// Whose growth with the number of processes the report is about.
const ENDS: [usize; 2] = [2, 10];
const FD: &str = "sluice-map-fd";
const MAPPED: &str = "sluice-map-mapped";
const NETLINK: &str = "sluice-map-netlink";

/// A mechanism that stores values under keys. `R` is what stores are made with.
pub struct StoreMechanism<R> {
    pub name: &'static str,
    pub unavailable: fn(&R) -> Option<Skipped>,
    pub create: fn(u64, &R) -> Result<Rc<dyn Store>>,
}

#[rustfmt::skip]
static STORES: [StoreMechanism<StoreResources>; 13] = [
    StoreMechanism { name: "shared-map", unavailable: shared_map::unavailable, create: |keys, _| shared_map::create(keys, false, false) },
    StoreMechanism { name: "shared-map-rwsem", unavailable: shared_map::unavailable, create: |keys, _| shared_map::create(keys, true, false) },
    StoreMechanism { name: "shared-map-files", unavailable: shared_map::unavailable_files, create: |keys, _| shared_map::create(keys, false, true) },
    StoreMechanism { name: "bpf-map", unavailable: bpf::unavailable, create: bpf::create },
    StoreMechanism { name: "redis", unavailable: |_| redis::missing(), create: redis::create },
    StoreMechanism { name: "lmdb", unavailable: |_| None, create: lmdb::create },
    StoreMechanism { name: "mapped-table", unavailable: |_| None, create: table::create },
    StoreMechanism { name: "pread", unavailable: |_| None, create: lower_bounds::create_pread },
    StoreMechanism { name: "getppid", unavailable: |_| None, create: |keys, _| lower_bounds::create_array(keys, true) },
    StoreMechanism { name: "array", unavailable: |_| None, create: |keys, _| lower_bounds::create_array(keys, false) },
    StoreMechanism { name: MAPPED, unavailable: sluice_map::unavailable, create: sluice_mapped::create },
    StoreMechanism { name: FD, unavailable: sluice_map::unavailable, create: sluice_map::create },
    StoreMechanism { name: NETLINK, unavailable: sluice_map::unavailable, create: netlink::create },
];

/// What needs no module, for comparisons on a machine that loads none.
const WITHOUT_MODULE: &[&str] = &["mapped-table", "lmdb", "pread", "getppid", "array"];

pub const GET: Kind = Kind {
    name: "a get",
    metric: Metric::Time,
    keys: 1000,
    checked: 100,
    warm_up: 64,
    step: |process| process.get_group(false),
    neighbour: None,
    has_samples: false,
    batch: None,
    mechanisms: &[FD, NETLINK, "shared-map", "bpf-map", "redis"],
    longer: &[],
    labels: &[],
};

/// Those that are compared with lookups in mapped memory.
const MANY: &[&str] = &[MAPPED, FD, "bpf-map", "lmdb"];
const MANY_GETS: Kind = Kind {
    keys: 100_000,
    warm_up: 100_000,
    ..GET
};

/// Stores whose gets one process executes alone; Redis has a server.
const COUNTED: &[&str] = &["shared-map", "bpf-map", "lmdb", MAPPED, FD, NETLINK];

/// In the order of the tables. The gets of the naive store do not use its files. Readers of bpf-map may miss a key in an update.
#[rustfmt::skip]
static KINDS: [Kind; 12] = [
    Kind { name: "gets", metric: Metric::Operations, step: Process::get_next,
        mechanisms: &[FD, NETLINK, "shared-map", "bpf-map"], longer: &["shared-map-rwsem"], ..GET },
    Kind { name: "sets", metric: Metric::Operations, step: Process::set_next,
        mechanisms: &[FD, NETLINK, "shared-map", "bpf-map", "shared-map-files"], longer: &["shared-map-rwsem"], ..GET },
    Kind { name: "gets and sets", metric: Metric::Operations, step: |process| Ok(process.get_next()? + process.set_next()?),
        mechanisms: &[FD, NETLINK, "shared-map", "shared-map-rwsem"], longer: &["shared-map-files"], ..GET },
    Kind { name: "processor time of a get, beside other work", metric: Metric::Cost, neighbour: Some(Process::write_to_nothing),
        mechanisms: &[FD, NETLINK, "shared-map"], longer: &["shared-map-rwsem"], ..GET },
    Kind { name: "processor time of a get, beside a writer", metric: Metric::Cost, neighbour: Some(Process::set_next),
        mechanisms: &[FD, NETLINK, "shared-map"], longer: &["shared-map-rwsem"], ..GET },
    Kind { longer: WITHOUT_MODULE, ..GET },
    Kind { name: "one of 64 gets", step: |process| process.get_group(true), batch: Some(BATCH),
        labels: &[("shared-map", "shared-map, one by one"), ("bpf-map", "bpf-map, one by one")], ..GET },
    Kind { name: "a get of 100,000", mechanisms: MANY, longer: WITHOUT_MODULE, ..MANY_GETS },
    Kind { name: "a get of 100,000, beside other work", mechanisms: &[MAPPED, FD], neighbour: Some(Process::write_to_nothing), ..MANY_GETS },
    Kind { name: "a get of 100,000, beside a writer", mechanisms: &[MAPPED, FD], neighbour: Some(Process::set_next), ..MANY_GETS },
    Kind { name: "a set of 100,000", mechanisms: MANY, step: Process::set_group, ..MANY_GETS },
    // A dump is long enough without a warm-up.
    Kind { name: "a key of a dump", keys: 10_000, warm_up: 0, step: Process::dump, mechanisms: &[FD, "bpf-map"], ..GET },
];

pub fn mechanisms() -> Vec<&'static str> {
    STORES.iter().map(|mechanism| mechanism.name).collect()
}

pub fn cases(plan: &Plan) -> Result<Vec<Case>> {
    if let Some(case) = without_two_cpus(plan, "map", "values under keys", Metric::Time) {
        return Ok(vec![case]);
    }
    let suite = suite(plan, Placement::TwoCpus)?;
    let counts = match plan.scale {
        Scale::Full => &PROCESSES[..],
        _ => &ENDS,
    };
    let mut cases = Vec::new();
    for kind in &KINDS {
        match kind.metric {
            Metric::Operations => cases.extend(counts.iter().map(|n| suite.case(kind, Some(*n)))),
            _ => cases.push(suite.case(kind, None)),
        }
    }
    Ok(cases)
}

/// Gets whose instructions are counted, on one processor. `job` gets a function that returns a store with `keys` keys.
pub(super) fn counted<J: Job + 'static>(
    plan: &Plan,
    name: &'static str,
    keys: u64,
    job: impl Fn(Box<dyn Fn() -> Result<Rc<dyn Store>>>, Confinement) -> J,
) -> Result<Case> {
    let suite = suite(plan, Placement::SameCpu)?;
    let title = format!("get of a value of {VALUE_SIZE} B, {keys} keys");
    let case = Case::new(name, title, Placement::SameCpu, Metric::Instructions);
    let counted = STORES
        .iter()
        .filter(|mechanism| COUNTED.contains(&mechanism.name));
    let entrants = counted.map(|mechanism| {
        let resources = Rc::clone(&suite.resources);
        let store = Box::new(move || (mechanism.create)(keys, &resources));
        let unavailable = (mechanism.unavailable)(&suite.resources);
        let job = job(store, suite.confinement.clone());
        (mechanism.name, mechanism.name, unavailable, job)
    });
    Ok(suite.enter(case.of_size(VALUE_SIZE), entrants))
}

fn suite(plan: &Plan, placement: Placement) -> Result<Suite<'_, StoreResources>> {
    let confinement = plan.confinement(placement)?;
    let resources = StoreResources::new(plan.tree.clone(), confinement.clone());
    Ok(Suite {
        name: "map",
        plan,
        confinement,
        duration: plan.duration,
        stores: &STORES,
        resources: Rc::new(resources),
        store: |resources, mechanism, keys| (mechanism.create)(keys, resources),
    })
}

type StoreOf<R> = fn(&R, &'static StoreMechanism<R>, u64) -> Result<Rc<dyn Store>>;

pub struct Suite<'a, R: 'static> {
    pub name: &'static str,
    pub plan: &'a Plan,
    pub confinement: Confinement,
    pub duration: Duration,
    pub stores: &'static [StoreMechanism<R>],
    pub resources: Rc<R>,
    /// Returns the store of a mechanism for a round.
    pub store: StoreOf<R>,
}

/// A mechanism of a case: its name, its label, why it cannot be measured here, and what measures it.
pub type Entrant<J> = (&'static str, &'static str, Option<Skipped>, J);

impl<R> Suite<'_, R> {
    /// Of a number of processes, for a rate.
    pub fn case(&self, kind: &'static Kind, processes: Option<usize>) -> Case {
        let title = match processes {
            None => kind.name.into(),
            Some(1) => format!("{} by 1 process", kind.name),
            Some(processes) => format!("{} by {processes} processes", kind.name),
        };
        let case = Case::new(self.name, title, Placement::TwoCpus, kind.metric);
        let mut case = case.of_size(VALUE_SIZE);
        if let Some(count) = processes {
            case = case.axis("operation", kind.name).axis("processes", count);
        }
        if let Some(batch) = kind.batch {
            case = case.axis("batch", batch);
        }
        let entrants = self.mechanisms_of(kind, processes).map(|mechanism| {
            let label = kind.labels.iter().find(|(name, _)| *name == mechanism.name);
            let label = label.map_or(mechanism.name, |(_, label)| label);
            let (store, resources) = (self.store, Rc::clone(&self.resources));
            let job = Access {
                kind,
                store: Box::new(move || store(&resources, mechanism, kind.keys)),
                confinement: self.confinement.clone(),
                processes,
                duration: self.duration,
            };
            (
                mechanism.name,
                label,
                (mechanism.unavailable)(&self.resources),
                job,
            )
        });
        let case = self.enter(case, entrants);
        Case {
            processes: processes.unwrap_or(1),
            ..case
        }
    }

    /// Adds the chosen mechanisms to a case. The first one is the reference, which is always measured.
    pub fn enter<J: Job + 'static>(
        &self,
        mut case: Case,
        entrants: impl IntoIterator<Item = Entrant<J>>,
    ) -> Case {
        case.processes = 1;
        for (name, label, unavailable, job) in entrants {
            let reference = *case.reference.get_or_insert(name);
            if name != reference && !self.plan.wants(name) {
                continue;
            }
            let label = label.into();
            match unavailable {
                Some(skip) => case.skipped.push(Skipped {
                    label,
                    ..skip.of(name)
                }),
                None => case
                    .subjects
                    .push(Subject::new(name, label, Waiting::Sleep, job)),
            }
        }
        case
    }

    /// Mechanisms that have no criterion are compared with the smallest and the largest number of processes only.
    fn mechanisms_of(
        &self,
        kind: &'static Kind,
        processes: Option<usize>,
    ) -> impl Iterator<Item = &'static StoreMechanism<R>> {
        let is_quick = self.plan.scale == Scale::Quick && self.plan.chosen.is_empty();
        let is_end = processes.is_none_or(|count| ENDS.contains(&count));
        self.stores.iter().filter(move |mechanism| {
            let has = |mechanisms: &[&str]| mechanisms.contains(&mechanism.name);
            let is_measured = has(kind.mechanisms) || !is_quick && has(kind.longer);
            is_measured && (is_end || !has(&["shared-map-rwsem", "bpf-map"]))
        })
    }
}

#[cfg(test)]
mod tests {
    use sluice_testkit::workers::serial;

    use super::*;
    use crate::suites::plan::tests::plan;

    #[test]
    fn every_store_returns_what_was_set() {
        let _serial = serial();
        let plan = plan();
        let suite = suite(&plan, Placement::SameCpu).unwrap();
        for kind in &KINDS {
            let processes = (kind.metric == Metric::Operations).then_some(2);
            for subject in suite.case(kind, processes).subjects {
                let context = format!("{} {}", subject.label, kind.name);
                subject.job.check().expect(&context);
                let done = subject.job.measure().expect(&context);
                assert!(done.messages > 0 && done.elapsed_ns > 0, "{context}");
            }
        }
    }
}
