// SPDX-License-Identifier: MIT OR Apache-2.0
//! The locks that processes take, from the kernel's tracepoint lock:lock_acquire, which requires lockdep.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use nix::unistd::Pid;

use super::check::skip;

const TRACING: &str = "/sys/kernel/tracing";
const EVENT: &str = "events/lock/lock_acquire";

/// A lock as printed in the trace: `00000000bd6414c3 &pipe->read_mutex`. The address of its lockdep_map is hashed (%p)
/// with a per-boot secret, so it is the same each time. The name is the expression that initialised it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lock {
    pub name: String,
    pub address: String,
}

/// A separate trace buffer, removed on drop, which ends the tracing.
pub struct LockTrace {
    buffer: PathBuf,
}

impl LockTrace {
    /// Traces the locks with these names. Skips the test without lockdep; with lockdep the tracepoint is required.
    pub fn for_locks(names: &[&str]) -> Result<Self> {
        let tracing = Path::new(TRACING);
        if !tracing.join(EVENT).exists() {
            if Path::new("/proc/lockdep_stats").exists() {
                bail!(
                    "this kernel has lockdep, but there is no {TRACING}/{EVENT}: it needs CONFIG_ENABLE_DEFAULT_TRACERS, and \
                     tracefs mounted there"
                );
            }
            return Err(skip(
                "this kernel does not trace its locks (CONFIG_PROVE_LOCKING)",
            ));
        }
        let buffer = tracing.join(format!("instances/sluice-tests-{}", std::process::id()));
        fs::create_dir(&buffer).with_context(|| format!("creating {}", buffer.display()))?;
        let trace = LockTrace { buffer };
        let filter: Vec<String> = names
            .iter()
            .map(|name| format!("name == \"{name}\""))
            .collect();
        trace.set(&format!("{EVENT}/filter"), &filter.join(" || "))?;
        Ok(trace)
    }

    /// The locks that each of these processes takes while `body` runs.
    pub fn during(
        &self,
        pids: &[Pid],
        body: impl FnOnce() -> Result<()>,
    ) -> Result<Vec<BTreeSet<Lock>>> {
        let list: Vec<String> = pids.iter().map(Pid::to_string).collect();
        self.set("set_event_pid", &list.join(" "))?;
        self.set("trace", "")?;
        self.set(&format!("{EVENT}/enable"), "1")?;
        let ran = body();
        self.set(&format!("{EVENT}/enable"), "0")?;
        ran?;
        let path = self.buffer.join("trace");
        let trace =
            fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        expect_complete(&trace)?;
        Ok(pids
            .iter()
            .map(|pid| locks_taken_by(*pid, &trace))
            .collect())
    }

    fn set(&self, file: &str, value: &str) -> Result<()> {
        let path = self.buffer.join(file);
        fs::write(&path, value).with_context(|| format!("writing {value:?} to {}", path.display()))
    }
}

impl Drop for LockTrace {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir(&self.buffer) {
            eprintln!(
                "the kernel goes on tracing locks: removing {}: {error}",
                self.buffer.display()
            );
        }
    }
}

/// The header has the numbers of events kept and written: `entries-in-buffer/entries-written: 557/557`.
fn expect_complete(trace: &str) -> Result<()> {
    let numbers = trace
        .lines()
        .find_map(|line| line.strip_prefix("# entries-in-buffer/entries-written: "))
        .and_then(|rest| rest.split_whitespace().next()?.split_once('/'));
    let (kept, written) = numbers.context("the trace has no number of events")?;
    ensure!(
        kept == written,
        "the trace kept {kept} of {written} events; it needs a larger buffer_size_kb"
    );
    Ok(())
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
# entries-in-buffer/entries-written: 3/3   #P:2
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

    #[test]
    fn a_trace_with_a_gap_is_rejected() {
        expect_complete(TRACE).expect("whole");
        let message = expect_complete(&TRACE.replace("3/3", "3/4")).expect_err("a gap");
        assert!(message.to_string().contains("3 of 4"), "{message}");
    }
}
