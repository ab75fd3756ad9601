// SPDX-License-Identifier: MIT OR Apache-2.0
//! The suites: each turns the options into cases, which the harness measures.

#[cfg(test)]
mod conformance;
mod contention;
mod ctl_scaling;
mod isolation;
mod load;
mod misdelivery;
mod probe;
mod reports;
mod rtt;
mod stream;
mod tar;
mod throughput;
mod wakeup;

use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;
use sluice_testkit::cgroup::{Cgroup, Tree};
use sluice_testkit::workers::{self, Pair, Side};

use crate::harness::pinning::{self, Placement};
use crate::harness::rounds::{Case, Skipped};
use crate::mechanisms::{Mechanism, Programs, Task};

pub use probe::CachelineProbe;
pub use wakeup::wakeup_cost;

/// The time limit for setting up processes, and for their exit after the measured time.
const PROCESS_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Suite {
    Rtt,
    Throughput,
    Load,
    Wakeup,
    Tar,
    Contention,
    Isolation,
    Names,
    Reports,
}

/// The extent of the measurement where the options do not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    Quick,
    Standard,
    Full,
    /// The suites in which third-party libraries are compared.
    ThirdParty,
}

impl Scale {
    pub fn suites(self) -> Vec<Suite> {
        if self == Self::ThirdParty {
            return vec![Suite::Rtt, Suite::Throughput, Suite::Load];
        }
        let mut suites = vec![
            Suite::Rtt,
            Suite::Throughput,
            Suite::Wakeup,
            Suite::Tar,
            Suite::Contention,
            Suite::Isolation,
        ];
        if self != Self::Quick {
            suites.extend([Suite::Names, Suite::Reports]);
        }
        suites
    }
}

/// The default message sizes of a suite.
struct Sizes {
    quick: &'static [usize],
    standard: &'static [usize],
    full: &'static [usize],
    third_party: &'static [usize],
}

pub struct Plan {
    pub scale: Scale,
    pub suites: Vec<Suite>,
    /// Message sizes; if empty, each suite has its own.
    pub sizes: Vec<usize>,
    pub placements: Vec<Placement>,
    pub duration: Duration,
    /// The cgroup of every measured process, so that the scheduler treats all alike; None without cgroup v2.
    pub cgroup: Option<Cgroup>,
    /// The mechanisms to measure. The first one is the reference.
    pub mechanisms: Vec<Rc<dyn Mechanism>>,
    /// Mechanisms that are not available here.
    pub unavailable: Vec<Skipped>,
    /// The cgroups of sluice-pipe, or why it is not available.
    pub tree: Result<Rc<Tree>, Skipped>,
}

impl Plan {
    pub fn cases(&self) -> Result<Vec<Case>> {
        let cases = self.suites.iter().map(|suite| match suite {
            Suite::Rtt => rtt::cases(self),
            Suite::Throughput => throughput::cases(self),
            Suite::Load => load::cases(self),
            Suite::Wakeup => wakeup::cases(self),
            Suite::Tar => tar::cases(self),
            Suite::Contention => contention::cases(self),
            Suite::Isolation => isolation::cases(self),
            Suite::Names => ctl_scaling::cases(self),
            Suite::Reports => reports::cases(self),
        });
        Ok(cases
            .collect::<Result<Vec<_>>>()?
            .into_iter()
            .flatten()
            .collect())
    }

    /// The mechanisms that support this task, and why the others do not.
    fn mechanisms_for(&self, task: &Task) -> (Vec<Rc<dyn Mechanism>>, Vec<Skipped>) {
        let mut skipped = self.unavailable.clone();
        let mut supported = Vec::new();
        for mechanism in &self.mechanisms {
            match mechanism.unsupported_reason(task) {
                None => supported.push(Rc::clone(mechanism)),
                Some(reason) => skipped.push(Skipped {
                    label: mechanism.label(),
                    ..Skipped::unavailable(mechanism.name(), reason)
                }),
            }
        }
        (supported, skipped)
    }

    /// The names of all selected mechanisms, available or not.
    pub fn names(&self) -> Vec<&'static str> {
        let available = self.mechanisms.iter().map(|one| one.name());
        let unavailable = self.unavailable.iter().map(|skip| skip.mechanism);
        available.chain(unavailable).collect()
    }

    fn sizes_or(&self, default: &Sizes) -> Vec<usize> {
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
    fn conditions(&self, default: &Sizes) -> impl Iterator<Item = (usize, Placement)> {
        let sizes = self.sizes_or(default).into_iter();
        sizes.flat_map(|size| {
            let placements = self.placements.iter();
            placements.map(move |&placement| (size, placement))
        })
    }

    /// For suites with one placement: two processors, unless only one was selected.
    fn one_placement(&self) -> Placement {
        match self.placements.contains(&Placement::TwoCpus) {
            true => Placement::TwoCpus,
            false => Placement::SameCpu,
        }
    }

    fn confinement(&self, placement: Placement) -> Result<Confinement> {
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

/// The cgroup and the processors of a pair of processes.
#[derive(Clone)]
struct Confinement {
    cgroup: Option<Cgroup>,
    cpus: [usize; 2],
}

impl Confinement {
    /// Starts two processes that are replaced by programs. Their measured threads pin themselves; all other threads use
    /// other processors if there are any.
    fn start_programs(&self, programs: Box<dyn Programs>) -> Result<Pair> {
        let others = pinning::others(&self.cpus)?;
        Pair::start(programs, PROCESS_TIMEOUT, |side, programs, start| {
            pinning::confine(&others)?;
            if let Some(helper) = programs.helper(side) {
                workers::spawn_helper(helper)?;
            }
            self.enter_cgroup()?;
            Err(start.exec(programs.program(side, self.cpu(side))))
        })
    }

    fn enter(&self, side: Side) -> Result<()> {
        self.enter_cgroup()?;
        pinning::pin(self.cpu(side))
    }

    fn cpu(&self, side: Side) -> usize {
        let [first, second] = self.cpus;
        match side {
            Side::First => first,
            Side::Second => second,
        }
    }

    /// For processes outside a pair: the scheduler chooses between both processors.
    fn enter_any_cpu(&self) -> Result<()> {
        self.enter_cgroup()?;
        pinning::confine(&self.cpus)
    }

    fn enter_cgroup(&self) -> Result<()> {
        self.cgroup.as_ref().map_or(Ok(()), Cgroup::enter)
    }
}
