// SPDX-License-Identifier: MIT OR Apache-2.0
//! Deciding who runs: a process that is woken on a processor that a real-time process has does not run before that one
//! sleeps, so what happens in between is certain to happen first.

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::libc;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

/// Keeps the calling process on the first processor.
pub fn stay_on_first_cpu() -> Result<()> {
    let mut set = CpuSet::new();
    set.set(0)?;
    sched_setaffinity(Pid::from_raw(0), &set).context("sched_setaffinity")
}

/// The same, and from now on it runs before all others there.
pub fn take_first_cpu() -> Result<()> {
    stay_on_first_cpu()?;
    // SAFETY: all of the structure is plain numbers, for which 0 is a value.
    let mut parameter: libc::sched_param = unsafe { std::mem::zeroed() };
    parameter.sched_priority = 1;
    // SAFETY: the kernel reads one parameter.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameter) };
    Errno::result(result).context("sched_setscheduler")?;
    Ok(())
}
