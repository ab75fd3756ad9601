// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory of a channel that is open at both ends and has carried a message: what a cgroup is charged for, that is the memory of
//! the kernel, of both processes, and of files in memory.
//!
//! A child makes the channels, so that it can be in the cgroup from its start, and reads what the cgroup uses before and after.
//! What the processes need without any channel is measured in the same way, and subtracted.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use sluice_testkit::workers::{Pair, Side, Start};

use super::plan::{Plan, title};
use super::setup::{PROCESS_TIMEOUT, Setup};
use crate::harness::rounds::{Case, Job, Measurement, Metric};
use crate::mechanisms::{Link, Workload};

const SIZE: usize = 64;
/// The kernel charges a cgroup in advance, by up to this for each processor, which is much for few channels.
const ADVANCE: u64 = 256 << 10;
const FEW: usize = 64;
const MANY: usize = 256;
/// Mechanisms that need more for a channel are measured with few.
const LARGE: u64 = 64 << 10;

pub fn cases(plan: &Plan) -> Result<Vec<Case>> {
    let task = plan.task(SIZE, Workload::Many);
    let top = plan.cgroup.as_ref().and_then(|own| own.path().parent());
    let Some(top) = top.filter(|top| usage(top).is_ok()) else {
        let reason = "the memory controller of cgroup v2 is missing; run as root, or in the VM";
        return Ok(vec![plan.skipped_case(
            "memory",
            Metric::Memory,
            task,
            reason,
        )]);
    };
    let title = title(&task, "");
    let case = plan.case("memory", title, Metric::Memory, task, |setup| Memory {
        setup,
        top: top.to_owned(),
        channels: Cell::new(FEW),
    });
    Ok(vec![case?])
}

struct Memory {
    setup: Setup,
    /// The cgroup that contains the cgroups of all processes.
    top: PathBuf,
    channels: Cell<usize>,
}

impl Job for Memory {
    /// Finds out how many channels a round needs.
    fn check(&self) -> Result<()> {
        let bytes = self.bytes(FEW)?;
        let is_large = bytes / FEW as u64 >= LARGE;
        self.channels.set(if is_large { FEW } else { MANY });
        self.bytes(self.channels.get()).map(drop)
    }

    fn measure(&self) -> Result<Measurement> {
        let channels = self.channels.get();
        Ok(Measurement {
            messages: channels as u64,
            bytes: self.bytes(channels)?,
            ..Measurement::default()
        })
    }
}

impl Memory {
    /// Of so many channels; at least what can be told from nothing.
    fn bytes(&self, channels: usize) -> Result<u64> {
        let (with, without) = (self.growth(channels)?, self.growth(0)?);
        let bytes = u64::try_from(with - without).unwrap_or(0);
        Ok(bytes.max(ADVANCE))
    }

    fn growth(&self, channels: usize) -> Result<i64> {
        let cgroup = self.setup.confinement.cgroup.as_ref();
        let cgroup = cgroup.context("the memory of a channel is the memory of a cgroup")?;
        // A cgroup for each channel is no part of it.
        let links = || self.setup.links(channels);
        let own_cgroups = self.setup.mechanism.own_cgroups.as_ref();
        let made = own_cgroups.map(|_| links()).transpose()?;
        let what = format!("the channels of {}", self.setup.mechanism.name);
        let growth = cgroup.spawn(&what, || {
            allow_files()?;
            let before = usage(&self.top)?;
            let links = made.map_or_else(links, Ok)?;
            let mut pair = Pair::start(links, PROCESS_TIMEOUT, hold)?;
            let after = usage(&self.top)?;
            pair.go()?;
            pair.finish(PROCESS_TIMEOUT)?;
            Ok(after as i64 - before as i64)
        });
        growth?.finish()
    }
}

/// Passes a message through each channel, and keeps all open until the other process has been told, too.
fn hold(side: Side, links: Vec<Link>, start: &mut Start) -> Result<Vec<u64>> {
    let mut message = [0x5a; SIZE];
    let (mut senders, mut receivers) = (Vec::new(), Vec::new());
    for link in links {
        match side {
            Side::First => senders.push(link.sender()?),
            Side::Second => receivers.push(link.receiver()?),
        }
    }
    for sender in &mut senders {
        sender.send(&message)?;
    }
    for receiver in &mut receivers {
        let arrived = receiver.receive(&mut message)?;
        ensure!(arrived == SIZE, "{arrived} of {SIZE} bytes arrived");
    }
    start.wait()?;
    Ok(Vec::new())
}

/// Each process has the files of all channels for a moment.
fn allow_files() -> Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most).context("cannot raise the limit of open files")
}

/// Bytes that a cgroup and all below it use.
fn usage(cgroup: &Path) -> Result<u64> {
    let path = cgroup.join("memory.current");
    let text = fs::read_to_string(&path);
    let text = text.with_context(|| format!("cannot read {}", path.display()))?;
    Ok(text.trim().parse()?)
}
