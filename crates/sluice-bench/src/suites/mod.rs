// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is measured: each suite turns the options into cells, and leaves measuring to the harness.

mod isolation;
mod names;
mod probe;
mod rtt;
mod stream;
mod tar;
mod throughput;

use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;

use crate::harness::cgroup::{self, Tree};
use crate::harness::pinning::{self, Placement};
use crate::harness::process::Side;
use crate::harness::rounds::{Cell, Skip};
use crate::mechanisms::{Mechanism, Pipe, SluicePipe, Waiting};

pub use probe::probe_class;

/// How long two processes may take to be set up, and beyond their time to end.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Suite {
    Rtt,
    Throughput,
    Tar,
    Isolation,
    Names,
}

pub struct Plan {
    pub suites: Vec<Suite>,
    pub sizes: Vec<usize>,
    pub placements: Vec<Placement>,
    pub duration: Duration,
    /// Where every measured process ends up, so that the scheduler treats all alike; none without cgroup v2.
    pub home: Option<PathBuf>,
    /// Where ours live, or why they cannot take part.
    pub sluice: Result<Rc<Tree>, String>,
}

impl Plan {
    pub fn cells(&self) -> Result<Vec<Cell>> {
        let cells = self.suites.iter().map(|suite| match suite {
            Suite::Rtt => rtt::cells(self),
            Suite::Throughput => throughput::cells(self),
            Suite::Tar => tar::cells(self),
            Suite::Isolation => isolation::cells(self),
            Suite::Names => names::cells(self),
        });
        Ok(cells
            .collect::<Result<Vec<_>>>()?
            .into_iter()
            .flatten()
            .collect())
    }

    /// pipe(2) first: it is what the others are compared with.
    fn rivals(&self) -> (Vec<Rc<dyn Mechanism>>, Vec<Skip>) {
        let mut rivals: Vec<Rc<dyn Mechanism>> = vec![Rc::new(Pipe)];
        match &self.sluice {
            Ok(tree) => rivals.extend(sluice_pipes(tree)),
            Err(reason) => {
                return (
                    rivals,
                    vec![Skip {
                        mechanism: "sluice-pipe",
                        reason: reason.clone(),
                    }],
                );
            }
        }
        (rivals, Vec::new())
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

/// In each way of waiting.
fn sluice_pipes(tree: &Rc<Tree>) -> [Rc<dyn Mechanism>; 2] {
    [Waiting::Sleep, Waiting::Spin]
        .map(|waiting| Rc::new(SluicePipe::new(Rc::clone(tree), waiting)) as _)
}

/// Where the two processes of a pair run.
#[derive(Clone)]
struct Room {
    home: Option<PathBuf>,
    cpus: [usize; 2],
}

impl Room {
    fn enter(&self, side: Side) -> Result<()> {
        if let Some(home) = &self.home {
            cgroup::enter(home)?;
        }
        let [first, second] = self.cpus;
        pinning::pin(match side {
            Side::First => first,
            Side::Second => second,
        })
    }
}
