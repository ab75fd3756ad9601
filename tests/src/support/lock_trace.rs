// SPDX-License-Identifier: MIT OR Apache-2.0
//! The locks that processes take, from the kernel's tracepoint lock:lock_acquire, which requires lockdep.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Result, bail};
use nix::unistd::Pid;

use super::check::skip;
use super::trace_buffer::{TRACING, TraceBuffer};

const EVENT: &str = "lock/lock_acquire";

/// Global locks: taken to open, and never to move data.
pub const LOCKS_FOR_ALL: [&str; 2] = ["table_lock", "users_lock"];
const OF_A_SCOPE: [&str; 1] = ["&scope->lock"];
const OF_A_PIPE: [&str; 6] = [
    "&pipe->lock",
    "&pipe->read_mutex",
    "&pipe->write_mutex",
    "&pipe->open_wait",
    "&pipe->readable",
    "&pipe->writable",
];

/// The names of all locks of the module that pipes take; those of the scheduler, the allocator and so on are shared anyway.
pub fn locks_of_pipes() -> Vec<&'static str> {
    [&LOCKS_FOR_ALL[..], &OF_A_SCOPE, &OF_A_PIPE].concat()
}

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
    use std::fs;

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

    /// Lockdep names a lock after the expression that initialises it.
    fn locks_of_source(text: &str) -> Vec<String> {
        const INITIALIZERS: [&str; 6] = [
            "spin_lock_init(",
            "mutex_init(",
            "sluice_wait_queue_init(",
            "DEFINE_SPINLOCK(",
            "DEFINE_RAW_SPINLOCK(",
            "DEFINE_MUTEX(",
        ];
        let named = |initializer| {
            let occurrences = text.split(initializer).skip(1);
            occurrences.filter_map(|rest| Some(rest.split_once(')')?.0.to_owned()))
        };
        INITIALIZERS.into_iter().flat_map(named).collect()
    }

    /// The first words of the names of sources that a pipe does not run. The wait module initialises queues for others and has no
    /// lock of its own.
    const NOT_FOR_PIPES: [&str; 8] = [
        "ring", "feed", "bus", "map", "stream", "keeper", "netlink", "wait",
    ];

    fn concerns_pipes(source: &Path) -> bool {
        let stem = source.file_stem().and_then(|stem| stem.to_str());
        let first = stem.and_then(|stem| stem.split('_').next());
        first.is_some_and(|first| !NOT_FOR_PIPES.contains(&first))
    }

    #[test]
    fn every_lock_of_the_module_is_looked_for() {
        let kernel = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernel");
        let mut found = BTreeSet::new();
        for entry in fs::read_dir(kernel).expect("the module's sources") {
            let path = entry.expect("an entry").path();
            if concerns_pipes(&path) && path.extension().is_some_and(|end| end == "c" || end == "h")
            {
                let text = fs::read_to_string(path).expect("a source");
                found.extend(locks_of_source(&text));
            }
        }
        assert_eq!(
            found,
            locks_of_pipes().into_iter().map(str::to_owned).collect()
        );
    }
}
