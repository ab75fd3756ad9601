// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which processor each of the two processes runs on.

use std::fs;

use anyhow::{Context, Result};
use clap::ValueEnum;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    SameCpu,
    TwoCpus,
}

impl Placement {
    pub fn name(self) -> &'static str {
        match self {
            Self::SameCpu => "same-cpu",
            Self::TwoCpus => "two-cpus",
        }
    }

    /// The processors of the first and of the second process, or None when this machine cannot place them so.
    pub fn cpus(self) -> Result<Option<[usize; 2]>> {
        Ok(self.choose(&allowed()?))
    }

    fn choose(self, allowed: &[usize]) -> Option<[usize; 2]> {
        match (self, allowed) {
            (Self::SameCpu, [first, ..]) => Some([*first, *first]),
            (Self::TwoCpus, [first, second, ..]) => Some([*first, *second]),
            _ => None,
        }
    }
}

fn allowed() -> Result<Vec<usize>> {
    let set = sched_getaffinity(Pid::from_raw(0))
        .context("cannot ask which processors this process may use")?;
    Ok((0..CpuSet::count())
        .filter(|&cpu| set.is_set(cpu).unwrap_or(false))
        .collect())
}

/// The processors that this process may use beside these, or all of them where there are no others.
pub fn others(cpus: &[usize]) -> Result<Vec<usize>> {
    Ok(beside(cpus, allowed()?))
}

fn beside(cpus: &[usize], allowed: Vec<usize>) -> Vec<usize> {
    let others = allowed.iter().filter(|cpu| !cpus.contains(cpu));
    let others: Vec<usize> = others.copied().collect();
    match others.is_empty() {
        true => allowed,
        false => others,
    }
}

/// Keeps the calling process on one processor: every thread of it, also those that a library has begun.
pub fn pin(cpu: usize) -> Result<()> {
    confine(&[cpu])
}

/// The same with several processors, among which the scheduler chooses.
pub fn confine(cpus: &[usize]) -> Result<()> {
    let mut set = CpuSet::new();
    for &cpu in cpus {
        set.set(cpu)?;
    }
    for thread in threads()? {
        sched_setaffinity(thread, &set).with_context(|| {
            format!("cannot move to the processors {cpus:?}; are they in this process's cpuset?")
        })?;
    }
    Ok(())
}

fn threads() -> Result<Vec<Pid>> {
    const DIRECTORY: &str = "/proc/self/task";
    let entries = fs::read_dir(DIRECTORY).with_context(|| format!("cannot read {DIRECTORY}"))?;
    entries
        .map(|entry| {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.parse().ok());
            number
                .map(Pid::from_raw)
                .with_context(|| format!("{DIRECTORY} has {name:?}, which is no thread"))
        })
        .collect()
}

/// The calling process stays on one processor until this is dropped.
pub struct Held {
    before: CpuSet,
}

pub fn hold(cpu: usize) -> Result<Held> {
    let before = sched_getaffinity(Pid::from_raw(0))
        .context("cannot ask which processors this process may use")?;
    pin(cpu)?;
    Ok(Held { before })
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Err(error) = sched_setaffinity(Pid::from_raw(0), &self.before) {
            eprintln!(
                "this process stays on one processor ({error}); what is measured next is wrong, start again"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_cpus_need_two_that_may_be_used() {
        assert_eq!(Placement::TwoCpus.choose(&[2, 5, 7]), Some([2, 5]));
        assert_eq!(Placement::TwoCpus.choose(&[2]), None);
        assert_eq!(Placement::SameCpu.choose(&[2]), Some([2, 2]));
    }

    #[test]
    fn others_keep_away_where_there_is_room() {
        assert_eq!(beside(&[0, 1], vec![0, 1, 2, 3]), [2, 3]);
        assert_eq!(beside(&[0, 1], vec![0, 1]), [0, 1]);
    }
}
