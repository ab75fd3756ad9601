// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is measured: each suite turns the options into cells, and leaves measuring to the harness.

#[cfg(test)]
mod conformance;
mod contention;
mod isolation;
mod load;
mod names;
mod probe;
mod reports;
mod rtt;
mod strangers;
mod stream;
mod tar;
mod throughput;
mod wakeup;

use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;

use crate::harness::cgroup::{self, Tree};
use crate::harness::pinning::{self, Placement};
use crate::harness::process::{self, Pair, Side};
use crate::harness::rounds::{Cell, Skip};
use crate::mechanisms::{Mechanism, Programs, Task};

pub use probe::CachelineProbe;
pub use wakeup::waking_cost;

/// How long two processes may take to be set up, and beyond their time to end.
const PATIENCE: Duration = Duration::from_secs(30);

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

/// How much is measured of what was not said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    Quick,
    Standard,
    Full,
    /// What libraries for the same purpose are compared in.
    Peers,
}

impl Scale {
    pub fn suites(self) -> Vec<Suite> {
        if self == Self::Peers {
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

/// What a suite measures of its own accord.
struct Sizes {
    quick: &'static [usize],
    standard: &'static [usize],
    full: &'static [usize],
    peers: &'static [usize],
}

pub struct Plan {
    pub scale: Scale,
    pub suites: Vec<Suite>,
    /// Of messages; without any, each suite has its own.
    pub sizes: Vec<usize>,
    pub placements: Vec<Placement>,
    pub duration: Duration,
    /// Where every measured process ends up, so that the scheduler treats all alike; none without cgroup v2.
    pub home: Option<PathBuf>,
    /// Those that take part. The first one is what the others are compared with.
    pub mechanisms: Vec<Rc<dyn Mechanism>>,
    /// Those that should and cannot.
    pub absent: Vec<Skip>,
    /// Where ours live, or why they cannot take part.
    pub tree: Result<Rc<Tree>, Skip>,
}

impl Plan {
    pub fn cells(&self) -> Result<Vec<Cell>> {
        let cells = self.suites.iter().map(|suite| match suite {
            Suite::Rtt => rtt::cells(self),
            Suite::Throughput => throughput::cells(self),
            Suite::Load => load::cells(self),
            Suite::Wakeup => wakeup::cells(self),
            Suite::Tar => tar::cells(self),
            Suite::Contention => contention::cells(self),
            Suite::Isolation => isolation::cells(self),
            Suite::Names => names::cells(self),
            Suite::Reports => reports::cells(self),
        });
        Ok(cells
            .collect::<Result<Vec<_>>>()?
            .into_iter()
            .flatten()
            .collect())
    }

    /// Those that can do this, and why the others cannot.
    fn rivals(&self, task: &Task) -> (Vec<Rc<dyn Mechanism>>, Vec<Skip>) {
        let mut skips = self.absent.clone();
        let mut rivals = Vec::new();
        for mechanism in &self.mechanisms {
            match mechanism.obstacle(task) {
                None => rivals.push(Rc::clone(mechanism)),
                Some(reason) => skips.push(Skip {
                    label: mechanism.label(),
                    ..Skip::circumstance(mechanism.name(), reason)
                }),
            }
        }
        (rivals, skips)
    }

    /// Of all that take part, or should.
    pub fn names(&self) -> Vec<&'static str> {
        let present = self.mechanisms.iter().map(|one| one.name());
        let absent = self.absent.iter().map(|skip| skip.mechanism);
        present.chain(absent).collect()
    }

    fn sizes_or(&self, default: &Sizes) -> Vec<usize> {
        match (self.sizes.is_empty(), self.scale) {
            (false, _) => self.sizes.as_slice(),
            (true, Scale::Quick) => default.quick,
            (true, Scale::Standard) => default.standard,
            (true, Scale::Full) => default.full,
            (true, Scale::Peers) => default.peers,
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

    /// For suites with one placement: two processors, unless only one was asked for.
    fn one_placement(&self) -> Placement {
        match self.placements.contains(&Placement::TwoCpus) {
            true => Placement::TwoCpus,
            false => Placement::SameCpu,
        }
    }

    fn room(&self, placement: Placement) -> Result<Room> {
        let cpus = placement.cpus()?.with_context(|| {
            format!(
                "this machine cannot place two processes {}; choose another with --placement",
                placement.name()
            )
        })?;
        Ok(Room {
            home: self.home.clone(),
            cpus,
        })
    }
}

/// Where the two processes of a pair run.
#[derive(Clone)]
struct Room {
    home: Option<PathBuf>,
    cpus: [usize; 2],
}

impl Room {
    /// Two processes that become programs. Their measured threads pin themselves; all other threads keep away from those.
    fn start_programs(&self, programs: Box<dyn Programs>) -> Result<Pair> {
        let others = pinning::others(&self.cpus)?;
        Pair::start(programs, PATIENCE, |side, programs, start| {
            pinning::confine(&others)?;
            if let Some(beside) = programs.beside(side) {
                process::start_beside(beside)?;
            }
            self.enter_home()?;
            Err(start.hand_over(programs.program(side, self.cpu(side))))
        })
    }

    fn enter(&self, side: Side) -> Result<()> {
        self.enter_home()?;
        pinning::pin(self.cpu(side))
    }

    fn cpu(&self, side: Side) -> usize {
        let [first, second] = self.cpus;
        match side {
            Side::First => first,
            Side::Second => second,
        }
    }

    /// For processes that are neither first nor second: the scheduler places them.
    fn enter_anywhere(&self) -> Result<()> {
        self.enter_home()?;
        pinning::confine(&self.cpus)
    }

    fn enter_home(&self) -> Result<()> {
        self.home.as_deref().map_or(Ok(()), cgroup::enter)
    }
}
