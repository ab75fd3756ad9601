// SPDX-License-Identifier: MIT OR Apache-2.0
//! The plan of a run, and the construction of cases from it.

use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result};
use sluice_testkit::cgroup::{Cgroup, Tree};

use super::setup::{Confinement, Setup};
use crate::harness::pinning::Placement;
use crate::harness::rounds::{Case, Job, Metric, Skipped, Subject};
use crate::mechanisms::{Mechanism, Task};

/// The extent of the measurement where the options do not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    Quick,
    Standard,
    Full,
    /// The suites in which third-party libraries are compared.
    ThirdParty,
}

/// The default message sizes of a suite.
pub struct Sizes {
    pub quick: &'static [usize],
    pub standard: &'static [usize],
    pub full: &'static [usize],
    pub third_party: &'static [usize],
}

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
    /// The names of the mechanisms to measure, also of those of a single suite; empty for all.
    pub chosen: Vec<String>,
    /// The mechanisms to measure. The first one is the reference.
    pub mechanisms: Vec<Rc<Mechanism>>,
    /// Mechanisms that are not available here.
    pub unavailable: Vec<Skipped>,
    /// The cgroups of sluice-pipe and sluice-ring, or why they are not available.
    pub tree: Result<Rc<Tree>, Skipped>,
    /// An empty disk for stores.
    pub disk: Option<PathBuf>,
    /// The program that stores durable maps.
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
        let (setups, skipped) = self.setups(&task)?;
        let subject = |setup: Setup| subject(&Rc::clone(&setup.mechanism), job(setup));
        Ok(Case {
            size: Some(task.size),
            reference: self.reference(),
            subjects: setups.into_iter().map(subject).collect(),
            skipped,
            ..Case::new(suite, title, task.placement, metric)
        })
    }

    /// With which mechanism the others are compared.
    pub fn reference(&self) -> Option<&'static str> {
        self.mechanisms.first().map(|one| one.name)
    }

    /// The mechanisms that support this task, and why the others do not.
    pub fn setups(&self, task: &Task) -> Result<(Vec<Setup>, Vec<Skipped>)> {
        let confinement = self.confinement(task.placement)?;
        let mut skipped = self.unavailable.clone();
        let mut setups = Vec::new();
        for mechanism in &self.mechanisms {
            match mechanism.unsupported_reason(task) {
                None => setups.push(Setup {
                    mechanism: Rc::clone(mechanism),
                    confinement: confinement.clone(),
                    size: task.size,
                }),
                Some(reason) => skipped.push(Skipped {
                    label: mechanism.label.clone(),
                    ..Skipped::unavailable(mechanism.name, reason)
                }),
            }
        }
        Ok((setups, skipped))
    }

    /// A case of this suite that no mechanism can be measured in, for this reason.
    pub fn skipped_case(
        &self,
        suite: &'static str,
        title: String,
        metric: Metric,
        (size, placement): (usize, Placement),
        reason: &str,
    ) -> Case {
        let names = self.names().into_iter();
        Case {
            size: Some(size),
            skipped: names
                .map(|name| Skipped::unavailable(name, reason))
                .collect(),
            ..Case::new(suite, title, placement, metric)
        }
    }

    /// The names of all selected mechanisms, available or not.
    pub fn names(&self) -> Vec<&'static str> {
        let available = self.mechanisms.iter().map(|one| one.name);
        let unavailable = self.unavailable.iter().map(|skip| skip.mechanism);
        available.chain(unavailable).collect()
    }

    /// Whether to measure this mechanism of a single suite.
    pub fn wants(&self, name: &str) -> bool {
        self.chosen.is_empty() || self.chosen.iter().any(|one| one == name)
    }

    pub fn sizes_or(&self, default: &Sizes) -> Vec<usize> {
        match (self.sizes.is_empty(), self.scale) {
            (false, _) => self.sizes.as_slice(),
            (true, Scale::Quick) => default.quick,
            (true, Scale::Standard) => default.standard,
            (true, Scale::Full) => default.full,
            (true, Scale::ThirdParty) => default.third_party,
        }
        .to_vec()
    }

    /// Every size in every placement.
    pub fn conditions(&self, default: &Sizes) -> impl Iterator<Item = (usize, Placement)> {
        let sizes = self.sizes_or(default).into_iter();
        sizes.flat_map(|size| {
            let placements = self.placements.iter();
            placements.map(move |&placement| (size, placement))
        })
    }

    /// For suites with one placement: two processors, unless only one was selected.
    pub fn one_placement(&self) -> Placement {
        match self.placements.contains(&Placement::TwoCpus) {
            true => Placement::TwoCpus,
            false => Placement::SameCpu,
        }
    }

    pub fn confinement(&self, placement: Placement) -> Result<Confinement> {
        let cpus = placement.cpus()?.with_context(|| {
            format!(
                "this machine has too few processors for {}; choose another --placement",
                placement.name()
            )
        })?;
        Ok(Confinement {
            cgroup: self.cgroup.clone(),
            cpus,
        })
    }
}

/// One sender and one receiver of this mechanism.
pub fn subject(mechanism: &Mechanism, job: impl Job + 'static) -> Subject {
    let label = mechanism.label.clone();
    Subject::new(mechanism.name, label, mechanism.waiting, job)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::mechanisms::{cacheline_pingpong, pipe};

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
            mechanisms: [pipe::mechanism(), cacheline_pingpong::mechanism(false)]
                .map(Rc::new)
                .to_vec(),
            unavailable: vec![skip.clone()],
            tree: Err(skip),
            disk: None,
            sluiced: "/usr/sbin/sluiced".into(),
        }
    }
}
