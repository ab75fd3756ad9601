// SPDX-License-Identifier: MIT OR Apache-2.0
//! The locks that processes take, from the kernel's tracepoint lock:lock_acquire, which requires lockdep.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Result, bail};
use nix::unistd::Pid;

use super::check::skip;
use super::trace_buffer::{TRACING, TraceBuffer};

const EVENT: &str = "lock/lock_acquire";

/// A lock as printed in the trace: `00000000bd6414c3 &pipe->read_mutex`. The address of its lockdep_map is hashed (%p)
/// with a per-boot secret, so it is the same each time. The name is the expression that initialised it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lock {
    pub name: String,
    pub address: String,
}

/// The locks with some names. Processes are chosen by the filter of the event, not by `set_event_pid`, which would have the
/// kernel patch probes into the scheduler: an emulated processor now and then runs an instruction patched away, and dies.
pub struct LockTrace {
    buffer: TraceBuffer,
    names: String,
}

impl LockTrace {
    /// Traces the locks with these names. Skips the test without lockdep; with lockdep the tracepoint is required.
    pub fn for_locks(names: &[&str]) -> Result<Self> {
        let event = Path::new(TRACING).join("events").join(EVENT);
        if !event.exists() {
            if Path::new("/proc/lockdep_stats").exists() {
                bail!(
                    "this kernel has lockdep, but there is no {}: it needs CONFIG_ENABLE_DEFAULT_TRACERS, and \
                     tracefs mounted there",
                    event.display()
                );
            }
            return Err(skip(
                "this kernel does not trace its locks (CONFIG_PROVE_LOCKING)",
            ));
        }
        Ok(LockTrace {
            buffer: TraceBuffer::new()?,
            names: one_of("name", names.iter().map(|name| format!("\"{name}\""))),
        })
    }

    /// The locks that each of these processes takes while `body` runs.
    pub fn during(
        &self,
        pids: &[Pid],
        body: impl FnOnce() -> Result<()>,
    ) -> Result<Vec<BTreeSet<Lock>>> {
        let takers = one_of("common_pid", pids.iter().map(Pid::to_string));
        let filter = format!("({}) && ({takers})", self.names);
        self.buffer
            .set(&format!("events/{EVENT}/filter"), &filter)?;
        let trace = self.buffer.during(&[EVENT], body)?;
        Ok(pids
            .iter()
            .map(|pid| locks_taken_by(*pid, &trace))
            .collect())
    }
}

/// A condition of a filter: the field has one of the values.
fn one_of(field: &str, values: impl Iterator<Item = String>) -> String {
    let conditions: Vec<String> = values.map(|value| format!("{field} == {value}")).collect();
    conditions.join(" || ")
}

fn locks_taken_by(pid: Pid, trace: &str) -> BTreeSet<Lock> {
    trace
        .lines()
        .filter_map(parse)
        .filter(|(taker, _)| *taker == pid)
        .map(|(_, lock)| lock)
        .collect()
}

/// `   sluice-tests-57      [001] ...1.    75.256868: lock_acquire: 00000000bd6414c3 try read &mm->mmap_lock`
fn parse(line: &str) -> Option<(Pid, Lock)> {
    let (who, what) = line.split_once(": lock_acquire: ")?;
    let (_, pid) = who.rsplit_once(" [")?.0.trim_end().rsplit_once('-')?;
    let (address, name) = what.split_once(' ')?;
    let name = name.strip_prefix("try ").unwrap_or(name);
    let name = name.strip_prefix("read ").unwrap_or(name);
    Some((
        Pid::from_raw(pid.parse().ok()?),
        Lock {
            name: name.to_owned(),
            address: address.to_owned(),
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "\
# tracer: nop
#
    sluice-tests-57      [001] ...1.    75.256868: lock_acquire: 00000000bd6414c3 &pipe->lock
           <...>-58      [000] d.h4.    75.258162: lock_acquire: 00000000f5e17d86 try read &mm->mmap_lock
    sluice-tests-57      [001] d.h4.    75.258359: lock_acquire: 00000000bd6414c3 &pipe->lock
";

    fn lock(address: &str, name: &str) -> Lock {
        Lock {
            name: name.to_owned(),
            address: address.to_owned(),
        }
    }

    #[test]
    fn each_process_has_its_own_locks() {
        let first = locks_taken_by(Pid::from_raw(57), TRACE);
        assert_eq!(
            first,
            BTreeSet::from([lock("00000000bd6414c3", "&pipe->lock")])
        );
        let second = locks_taken_by(Pid::from_raw(58), TRACE);
        assert_eq!(
            second,
            BTreeSet::from([lock("00000000f5e17d86", "&mm->mmap_lock")])
        );
    }
}
