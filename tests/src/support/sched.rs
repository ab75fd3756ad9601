// SPDX-License-Identifier: MIT OR Apache-2.0
//! Control over which process runs: a process that is woken on a CPU with a running real-time process does not run
//! before that one sleeps, which makes the order of events certain.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::libc;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use super::check::skip;

fn switch_of(number: usize) -> PathBuf {
    format!("/sys/devices/system/cpu/cpu{number}/online").into()
}

/// A CPU that can be taken offline, and is brought online when this is dropped.
pub struct Processor(usize);

impl Processor {
    pub fn last() -> Result<Self> {
        let exists = |number: &usize| switch_of(*number).exists();
        let last = (1..64).take_while(exists).last();
        let reason = "no processor can be taken offline (CONFIG_HOTPLUG_CPU)";
        last.map(Self).ok_or_else(|| skip(reason))
    }

    pub fn number(&self) -> usize {
        self.0
    }

    pub fn set_online(&self, online: bool) -> Result<()> {
        let text = if online { "1" } else { "0" };
        let path = switch_of(self.0);
        fs::write(&path, text).with_context(|| format!("{text} to {}", path.display()))
    }
}

impl Drop for Processor {
    fn drop(&mut self) {
        if let Err(error) = self.set_online(true) {
            eprintln!("processor {} stays offline: {error:#}", self.0);
        }
    }
}

const PREEMPTION: &str = "/sys/kernel/debug/sched/preempt";

/// System calls are preempted anywhere until this is dropped, where the kernel can change that (CONFIG_PREEMPT_DYNAMIC).
pub struct FullPreemption {
    before: Option<String>,
}

impl FullPreemption {
    pub fn begin() -> Result<Self> {
        // Such as `none (voluntary) full`.
        let modes = fs::read_to_string(PREEMPTION).ok();
        let mode = modes.and_then(|modes| {
            let (_, mode) = modes.split_once('(')?;
            Some(mode.split_once(')')?.0.to_owned())
        });
        if mode.is_some() {
            fs::write(PREEMPTION, "full").with_context(|| format!("full to {PREEMPTION}"))?;
        }
        Ok(FullPreemption { before: mode })
    }
}

impl Drop for FullPreemption {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.before.as_ref().map(|mode| fs::write(PREEMPTION, mode)) {
            eprintln!("the mode of preemption stays 'full': {error}");
        }
    }
}

/// Pins the calling thread to a CPU.
pub fn pin_to_cpu(number: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(number)?;
    sched_setaffinity(Pid::from_raw(0), &set).context("sched_setaffinity")
}

/// Pins the calling process to the first CPU.
pub fn pin_to_first_cpu() -> Result<()> {
    pin_to_cpu(0)
}

/// Pins the calling process to the first CPU, with real-time priority.
pub fn run_realtime_on_first_cpu() -> Result<()> {
    pin_to_first_cpu()?;
    // SAFETY: all fields of the structure are integers, for which 0 is valid.
    let mut parameter: libc::sched_param = unsafe { std::mem::zeroed() };
    parameter.sched_priority = 1;
    // SAFETY: the kernel reads one parameter.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameter) };
    Errno::result(result).context("sched_setscheduler")?;
    Ok(())
}
