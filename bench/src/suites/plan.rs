// SPDX-License-Identifier: MIT OR Apache-2.0
//! The plan of a run, and the construction of cases from it.

use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result};
use sluice_testkit::cgroup::{Cgroup, Tree};
use sluice_testkit::units;

use super::setup::{Confinement, Setup};
use crate::harness::pinning::Placement;
use crate::harness::rounds::{Case, Job, Measurement, Metric, Skipped, Subject};
use crate::mechanisms::registry::Registry;
use crate::mechanisms::{Mechanism, Task, Workload};

/// The extent of the measurement where the options do not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    Quick,
    Standard,
    Full,
    /// The suites in which third-party libraries are compared.
    ThirdParty,
}

/// The default message sizes of a suite, in the order of the scales.
pub type Sizes = [&'static [usize]; 4];

#[derive(Clone)]
pub struct Plan {
    pub scale: Scale,
    /// Software executes the instructions of this machine: what takes long there is reduced, but for a full run.
    pub emulated: bool,
    /// Message sizes; if empty, each suite has its own.
    pub sizes: Vec<usize>,
    pub placements: Vec<Placement>,
    pub duration: Duration,
    pub rounds: usize,
    /// The cgroup of every measured process, so that the scheduler treats all alike; None without cgroup v2.
    pub cgroup: Option<Cgroup>,
    /// The names of the mechanisms to measure, also of mechanisms of a single suite; empty for all.
    pub chosen: Vec<String>,
    /// The mechanisms to measure. The first one is the reference.
    pub registry: Registry,
    /// The cgroups of sluice-pipe and sluice-ring, or why they are not available.
    pub tree: Result<Rc<Tree>, Skipped>,
    /// An empty disk for stores.
    pub disk: Option<PathBuf>,
    pub sluiced: PathBuf,
}

impl Plan {
    /// A case of all mechanisms that support this task, each with one sender and one receiver.
    pub fn case<J: Job + 'static>(
        &self,
        suite: &'static str,
        title: String,
        metric: Metric,
        task: Task,
        job: impl Fn(Setup) -> J,
    ) -> Result<Case> {
        let mut case = Case {
            size: Some(task.size),
            reference: self.registry.available.first().map(|one| one.name),
            skipped: self.registry.unavailable.clone(),
            ..Case::new(suite, title, task.placement, metric)
        };
        for mechanism in &self.registry.available {
            match mechanism.unsupported_reason(&task) {
                None => {
                    let setup = self.setup(Rc::clone(mechanism), &task)?;
                    case.subjects.push(subject(mechanism, job(setup)));
                }
                Some(reason) => case.skipped.push(Skipped {
                    label: mechanism.label.clone(),
                    ..Skipped::unavailable(mechanism.name, reason)
                }),
            }
        }
        Ok(case)
    }

    pub fn setup(&self, mechanism: Rc<Mechanism>, task: &Task) -> Result<Setup> {
        Ok(Setup {
            mechanism,
            confinement: self.confinement(task.placement)?,
            size: task.size,
        })
    }

    pub fn skipped_case(
        &self,
        suite: &'static str,
        metric: Metric,
        task: Task,
        reason: &str,
    ) -> Case {
        let skip = |name| Skipped::unavailable(name, reason);
        Case {
            size: Some(task.size),
            skipped: self.registry.names().into_iter().map(skip).collect(),
            ..Case::new(suite, title(&task, ""), task.placement, metric)
        }
    }

    /// Whether to measure this mechanism of a single suite.
    pub fn wants(&self, name: &str) -> bool {
        self.chosen.is_empty() || self.chosen.iter().any(|one| one == name)
    }

    pub fn sizes_or(&self, default: &Sizes) -> Vec<usize> {
        match self.sizes.is_empty() {
            true => default[self.scale as usize].to_vec(),
            false => self.sizes.clone(),
        }
    }

    pub fn tasks(&self, default: &Sizes, workload: Workload) -> impl Iterator<Item = Task> {
        let sizes = self.sizes_or(default).into_iter();
        sizes.flat_map(move |size| {
            let placements = self.placements.iter();
            placements.map(move |&placement| Task {
                size,
                placement,
                workload,
            })
        })
    }

    pub fn task(&self, size: usize, workload: Workload) -> Task {
        Task {
            size,
            placement: self.one_placement(),
            workload,
        }
    }

    /// For suites with one placement: two processors, unless only one was selected.
    pub fn one_placement(&self) -> Placement {
        match self.placements.contains(&Placement::TwoCpus) {
            true => Placement::TwoCpus,
            false => Placement::SameCpu,
        }
    }

    pub fn confinement(&self, placement: Placement) -> Result<Confinement> {
        let cpus = placement.cpus()?;
        Ok(Confinement {
            cgroup: self.cgroup.clone(),
            cpus: cpus
                .context("this machine has too few processors; choose another --placement")?,
        })
    }
}

/// The size, a further condition unless it is empty, and the placement.
pub fn title(task: &Task, condition: &str) -> String {
    let (size, placement) = (units::size(task.size), task.placement.name());
    match condition {
        "" => format!("{size} {placement}"),
        _ => format!("{size} {condition} {placement}"),
    }
}

/// The case without results of a suite that needs two processors, if the plan has only one.
pub fn without_two_cpus(
    plan: &Plan,
    suite: &'static str,
    title: &str,
    metric: Metric,
) -> Option<Case> {
    (plan.one_placement() == Placement::SameCpu).then(|| Case {
        skipped: vec![Skipped::unavailable(suite, "it needs two processors")],
        ..Case::new(suite, title.into(), Placement::SameCpu, metric)
    })
}

pub fn subject(mechanism: &Mechanism, job: impl Job + 'static) -> Subject {
    let label = mechanism.label.clone();
    let tidy = Tidy(job, mechanism.own_cgroups.clone());
    Subject::new(mechanism.name, label, mechanism.waiting, tidy)
}

/// A job that leaves no cgroups of its links: their channels would count towards the limits of later ones.
struct Tidy<J>(J, Option<Rc<Tree>>);

impl<J> Tidy<J> {
    fn then_remove<T>(&self, done: Result<T>) -> Result<T> {
        let tree = self.1.as_ref();
        tree.map_or(Ok(()), |tree| tree.remove_temporary())?;
        done
    }
}

impl<J: Job> Job for Tidy<J> {
    fn check(&self) -> Result<()> {
        self.then_remove(self.0.check())
    }

    fn measure(&self) -> Result<Measurement> {
        self.then_remove(self.0.measure())
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn plan() -> Plan {
        let skip = Skipped::unavailable("sluice-pipe", "not in unit tests");
        Plan {
            scale: Scale::Standard,
            emulated: false,
            sizes: Vec::new(),
            placements: vec![Placement::SameCpu],
            duration: Duration::from_millis(20),
            rounds: 5,
            chosen: Vec::new(),
            cgroup: None,
            registry: Registry::new(&Err(skip.clone())),
            tree: Err(skip),
            disk: None,
            sluiced: "/usr/sbin/sluiced".into(),
        }
    }
}
