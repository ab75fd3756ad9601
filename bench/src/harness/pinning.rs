// SPDX-License-Identifier: MIT OR Apache-2.0
//! The processors of the two processes.

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

    /// The processors of the first and of the second process; None if this machine has too few.
    pub fn cpus(self) -> Result<Option<[usize; 2]>> {
        Ok(match (self, &allowed()?[..]) {
            (Self::SameCpu, [first, ..]) => Some([*first, *first]),
            (Self::TwoCpus, [first, second, ..]) => Some([*first, *second]),
            _ => None,
        })
    }
}

fn allowed() -> Result<Vec<usize>> {
    let set = sched_getaffinity(Pid::from_raw(0))
        .context("cannot read the CPU affinity of this process")?;
    let is_set = |cpu: &usize| set.is_set(*cpu).unwrap_or(false);
    Ok((0..CpuSet::count()).filter(is_set).collect())
}

/// The processors that are "online", whether or not this process may use them; or "isolated", on which the scheduler places nothing.
pub fn listed(list: &str) -> Result<Vec<usize>> {
    let path = &format!("/sys/devices/system/cpu/{list}");
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    parse_list(text.trim())
        .with_context(|| format!("{path} contains '{text}', which is not a list of processors"))
}

/// A list of the kernel, such as "0-2,5".
fn parse_list(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.parse::<usize>().ok();
        cpus.extend(number(first)?..=number(last)?);
    }
    Some(cpus)
}

/// Restricts a thread to these processors; 0 is the calling one.
pub fn confine_thread(thread: Pid, cpus: &[usize]) -> Result<()> {
    let mut set = CpuSet::new();
    cpus.iter().try_for_each(|&cpu| set.set(cpu))?;
    sched_setaffinity(thread, &set).with_context(|| {
        format!("cannot move to the processors {cpus:?}; check the cpuset of this process")
    })
}

/// Restricts the calling process, with all its threads, including threads of libraries.
pub fn confine(cpus: &[usize]) -> Result<()> {
    const DIRECTORY: &str = "/proc/self/task";
    for entry in fs::read_dir(DIRECTORY).with_context(|| format!("cannot read {DIRECTORY}"))? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.parse().ok());
        let number = number
            .with_context(|| format!("{DIRECTORY} contains {name:?}, which is not a thread id"))?;
        confine_thread(Pid::from_raw(number), cpus)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_parsed() {
        assert_eq!(parse_list("0-2,5"), Some(vec![0, 1, 2, 5]));
        assert_eq!(parse_list("7"), Some(vec![7]));
        assert_eq!(parse_list(""), Some(Vec::new()));
        assert_eq!(parse_list("0-x"), None);
        assert!(!listed("online").unwrap().is_empty());
    }
}
