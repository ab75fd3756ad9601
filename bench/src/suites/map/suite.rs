// SPDX-License-Identifier: MIT OR Apache-2.0
//! A suite that measures stores: its mechanisms, and the cases that they have.

use std::rc::Rc;
use std::time::Duration;

use anyhow::Result;

use super::access::{Access, Kind};
use super::store::{Store, VALUE_SIZE};
use crate::harness::pinning::Placement;
use crate::harness::rounds::{Case, Job, Metric, Skipped, Subject};
use crate::harness::waiting::Waiting;
use crate::suites::plan::{Plan, Scale};
use crate::suites::setup::Confinement;

/// Whose growth with the number of processes the report is about.
pub const ENDS: [usize; 2] = [2, 10];

/// A mechanism that stores values under keys.
pub struct Way<R> {
    pub name: &'static str,
    /// The reason why it cannot be measured here.
    pub unavailable: fn(&R) -> Option<Skipped>,
    /// A store in which this many keys have a value.
    pub create: fn(u64, &R) -> Result<Rc<dyn Store>>,
}

/// What stores are made with.
pub trait Resources: Sized + 'static {
    /// The store for a round.
    fn store(&self, way: &'static Way<Self>, keys: u64) -> Result<Rc<dyn Store>> {
        (way.create)(keys, self)
    }
}

/// A mechanism of a case: its name, its label, why it cannot be measured here, and what measures it.
pub type Entrant = (&'static str, &'static str, Option<Skipped>, Box<dyn Job>);

pub struct Suite<'a, R: Resources> {
    pub name: &'static str,
    pub plan: &'a Plan,
    pub confinement: Confinement,
    pub duration: Duration,
    pub ways: &'static [Way<R>],
    pub resources: Rc<R>,
}

/// The case without results of a suite that needs two processors, if the plan has only one.
pub fn without_two_cpus(plan: &Plan, suite: &'static str, case: (&str, Metric)) -> Option<Case> {
    let (title, metric) = case;
    (plan.one_placement() == Placement::SameCpu).then(|| Case {
        skipped: vec![Skipped::unavailable(suite, "it needs two processors")],
        ..Case::new(suite, title.into(), Placement::SameCpu, metric)
    })
}

impl<R: Resources> Suite<'_, R> {
    /// Of a number of processes, for a rate.
    pub fn case(&self, kind: &'static Kind, processes: Option<usize>) -> Case {
        let title = match processes {
            None => kind.name.into(),
            Some(1) => format!("{} by 1 process", kind.name),
            Some(processes) => format!("{} by {processes} processes", kind.name),
        };
        let case = Case {
            size: Some(VALUE_SIZE),
            ..Case::new(self.name, title, Placement::TwoCpus, kind.metric)
        };
        let ways = self.ways_of(kind, processes).map(|way| -> Entrant {
            let mut labels = kind.labels.iter();
            let label = labels.find_map(|(name, label)| (*name == way.name).then_some(*label));
            let job = Box::new(self.access(way, kind, processes));
            let unavailable = (way.unavailable)(&self.resources);
            (way.name, label.unwrap_or(way.name), unavailable, job)
        });
        let mut case = self.enter(case, ways);
        for subject in &mut case.subjects {
            if let Some(processes) = processes {
                subject.processes = processes;
                subject.axes.insert("operation".into(), kind.name.into());
                subject.axes.insert("processes".into(), processes.into());
            }
            if let Some(batch) = kind.batch {
                subject.axes.insert("batch".into(), batch.into());
            }
        }
        case
    }

    /// Adds the chosen mechanisms to a case. The first one is the reference, which is always measured.
    pub fn enter(&self, mut case: Case, entrants: impl IntoIterator<Item = Entrant>) -> Case {
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
                None => case.subjects.push(Subject {
                    processes: 1,
                    ..Subject::new(name, label, Waiting::Sleep, job)
                }),
            }
        }
        case
    }

    /// Mechanisms that have no criterion are compared with the smallest and the largest number of processes only.
    pub fn ways_of(
        &self,
        kind: &'static Kind,
        processes: Option<usize>,
    ) -> impl Iterator<Item = &'static Way<R>> {
        let is_quick = self.plan.scale == Scale::Quick && self.plan.chosen.is_empty();
        let is_end = processes.is_none_or(|count| ENDS.contains(&count));
        self.ways.iter().filter(move |way| {
            let has = |mechanisms: &[&str]| mechanisms.contains(&way.name);
            let is_measured = has(kind.mechanisms) || !is_quick && has(kind.longer);
            is_measured && (is_end || !has(&["shared-map-rwsem", "bpf-map"]))
        })
    }

    pub fn access(
        &self,
        way: &'static Way<R>,
        kind: &'static Kind,
        processes: Option<usize>,
    ) -> Access {
        let resources = Rc::clone(&self.resources);
        Access {
            kind,
            store: Box::new(move || resources.store(way, kind.keys)),
            confinement: self.confinement.clone(),
            processes,
            duration: self.duration,
        }
    }
}
