// SPDX-License-Identifier: MIT OR Apache-2.0
//! As many kills as `--kills` says, at random points of calls of all kinds, by processes of two cgroups that use the same
//! names; the daemon of durable maps is killed meanwhile. Afterwards nothing is left of them. `--seed` repeats the
//! choices of a storm, but not the order in which the processes run.

mod roles;
mod shared_state;
mod workload;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use fastrand::Rng;
use sluice::Scope;

use crate::registry::{Context, topic};
use crate::support::cgroup::Cgroup;
use crate::support::check::note;
use crate::support::child::Child;
use crate::support::daemon::{Daemon, open_durable};
use crate::support::kernel::{expect_no_objects, free_pages, has_kasan};
use crate::support::memory::PAGE;
use crate::support::time::{event_timeout, eventually, scaled};
use roles::Role;
use shared_state::{CGROUPS, KEYS, SharedState};
use workload::Workload;

topic!(
    "kill_storm",
    fifo: [],
    pipe_only: [
        processes_killed_at_random_leave_nothing,
    ],
);

/// The durable map of each cgroup.
const DURABLE: &str = "durable";
/// How many more pages may be in use after the second half than after the first one.
const PAGES: u64 = 512;

fn processes_killed_at_random_leave_nothing(context: &Context) -> Result<()> {
    let seed = context.random.seed;
    note(format!("--seed {seed} --kills {}", context.random.kills));
    Storm::new(context)?
        .run()
        .with_context(|| format!("--seed {seed}"))
}

struct Storm<'a> {
    context: &'a Context,
    cgroups: [Cgroup; CGROUPS],
    shared: SharedState,
    random: Rng,
    daemons_killed: u32,
}

impl<'a> Storm<'a> {
    fn new(context: &'a Context) -> Result<Self> {
        let cgroup = context.cgroup()?;
        Ok(Storm {
            context,
            cgroups: [cgroup.create_child("one")?, cgroup.create_child("two")?],
            shared: SharedState::new()?,
            random: Rng::with_seed(context.random.seed),
            daemons_killed: 0,
        })
    }

    fn run(mut self) -> Result<()> {
        let measures = !has_kasan()?;
        let half = self.context.random.kills / 2;
        self.half(half)?;
        let first = measures.then(|| self.available_pages()).transpose()?;
        self.half(self.context.random.kills - half)?;
        self.report();
        match first {
            Some(first) => self.expect_pages_returned(first),
            None => {
                note("free pages are not compared: KASAN delays frees");
                Ok(())
            }
        }
    }

    /// A storm, and the checks after it.
    fn half(&mut self, kills: u32) -> Result<()> {
        let daemon = self.kill_processes(kills)?;
        self.expect_durable(&daemon)?;
        daemon.finish()?;
        self.expect_uncharged()?;
        expect_no_objects()?;
        expect_module_unused()?;
        expect_none_uninterruptible()
    }

    /// Ends when the processes of both cgroups have ended; the daemon runs then.
    fn kill_processes(&mut self, kills: u32) -> Result<Daemon<'a>> {
        let mut daemon = Daemon::start(self.context)?;
        self.shared.begin();
        let mut storms = Vec::new();
        for (number, cgroup) in self.cgroups.iter().enumerate() {
            let seed = self.random.u64(..);
            let shared = &self.shared;
            storms.push(cgroup.spawn("the storm of a cgroup", || {
                Workload::new(number, seed, shared).run((kills as usize + number) / CGROUPS)
            })?);
        }
        while !all_ended(&storms)? {
            std::thread::sleep(scaled(Duration::from_millis(self.random.u64(0..1500))));
            drop(daemon);
            self.daemons_killed += 1;
            daemon = Daemon::start(self.context)?;
        }
        storms.into_iter().try_for_each(Child::finish)?;
        Ok(daemon)
    }

    /// Each acknowledged change is stored, and no value that was never set.
    fn expect_durable(&self, daemon: &Daemon) -> Result<()> {
        daemon.run("detach --all")?;
        for (number, cgroup) in self.cgroups.iter().enumerate() {
            let map = open_durable(DURABLE, scope_of(cgroup)?, event_timeout())?;
            let issued = self.shared.issued(number);
            for key in 0..KEYS {
                let entry = map.get(key.to_string())?;
                let stored = entry.map_or(Ok(0), |entry| parse(&entry.value))?;
                let acknowledged = self.shared.acknowledged(number, key);
                ensure!(
                    stored == 0 || key_of(stored) == key.to_string(),
                    "key {key}: {stored} is stored, which belongs to key {}",
                    key_of(stored)
                );
                ensure!(
                    (acknowledged..=issued).contains(&stored),
                    "key {key}: {stored} is stored; {acknowledged} was acknowledged, and {issued} was the last number"
                );
            }
        }
        Ok(())
    }

    fn expect_uncharged(&self) -> Result<()> {
        let mut counts = Vec::new();
        let settled = eventually("the limits count nothing", || {
            counts.clear();
            for cgroup in &self.cgroups {
                let usage = sluice::usage(&scope_of(cgroup)?)?;
                for account in [usage.scope, usage.user] {
                    counts.extend([account.channels, account.bytes]);
                }
            }
            Ok(counts.iter().all(|count| *count == 0).then_some(()))
        });
        settled.with_context(|| format!("channels and bytes in use: {counts:?}"))
    }

    fn report(&self) {
        let steps: Vec<String> = Role::ALL
            .iter()
            .map(|role| format!("{role:?} {}", self.shared.steps(*role)))
            .collect();
        note(format!("steps: {}", steps.join(", ")));
        let [end, wait] = self.shared.longest();
        note(format!(
            "{} daemons killed; longest from a kill to the end of the process: {end:?}; longest wait of a survivor for its end: {wait:?}",
            self.daemons_killed
        ));
    }

    /// The free pages, and those of the store of the daemon, which is in memory and grows.
    fn available_pages(&self) -> Result<u64> {
        Ok(free_pages()? + pages_of_files(&self.context.scratch)?)
    }

    /// `first` is the number of available pages after the first half.
    fn expect_pages_returned(&self, first: u64) -> Result<()> {
        let mut second = 0;
        let settled = eventually("no more pages are in use than after the first half", || {
            second = self.available_pages()?;
            Ok((second + PAGES >= first).then_some(()))
        });
        note(format!(
            "free pages and those of the store, {}: {first} after the first half, {second} after the second one",
            pages_of_files(&self.context.scratch)?
        ));
        settled.with_context(|| format!("free pages: {first}, then {second}"))
    }
}

fn pages_of_files(directory: &Path) -> Result<u64> {
    let mut pages = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        pages += match metadata.is_dir() {
            true => pages_of_files(&entry.path())?,
            // In units of 512 bytes.
            false => metadata.blocks().div_ceil(PAGE as u64 / 512),
        };
    }
    Ok(pages)
}

fn scope_of(cgroup: &Cgroup) -> Result<Scope> {
    Ok(Scope::at(cgroup.path())?)
}

fn key_of(number: u64) -> String {
    (number % KEYS as u64).to_string()
}

fn parse(value: &[u8]) -> Result<u64> {
    Ok(std::str::from_utf8(value)?.parse()?)
}

fn all_ended(children: &[Child<()>]) -> Result<bool> {
    for child in children {
        if !child.has_ended()? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Also by what the kernel closes later, such as files of io_uring.
fn expect_module_unused() -> Result<()> {
    eventually("the module is not in use", || {
        let count = fs::read_to_string("/sys/module/sluice/refcnt")?;
        Ok((count.trim() == "0").then_some(()))
    })
}

/// No process of the machine stays in state D.
fn expect_none_uninterruptible() -> Result<()> {
    eventually("no process is in state D", || {
        for entry in fs::read_dir("/proc")?.flatten() {
            if is_uninterruptible(&entry.path()) {
                return Ok(None);
            }
        }
        Ok(Some(()))
    })
}

fn is_uninterruptible(process: &Path) -> bool {
    let stat = fs::read_to_string(process.join("stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| rest.starts_with('D'))
}
