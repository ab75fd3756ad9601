// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon of the durable maps, with a store and a socket of its own.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use sluice_testkit::clock;
use sluice_testkit::time::Deadline;
use sluiced_protocol::{Request, Response};

use crate::harness::server::{START_TIMEOUT, Server};
use crate::suites::setup::{Confinement, interruptible_sleep};

const STOP_TIMEOUT: Duration = Duration::from_secs(30);
/// Without a commit for so long, it does nothing.
const IDLE: Duration = Duration::from_millis(100);

/// Ended when dropped, and when this process ends.
pub struct Daemon {
    process: Server,
    socket: PathBuf,
    database: PathBuf,
}

impl Daemon {
    pub fn start(program: &Path, folder: &Path, confinement: &Confinement) -> Result<Self> {
        let (store, socket) = (folder.join("store"), folder.join("sluiced.sock"));
        let log = folder.join("sluiced.log");
        let mut command = Command::new(program);
        command.arg("--store").arg(&store);
        command.arg("--socket").arg(&socket);
        let mut process = Server::spawn(command.stderr(File::create(&log)?))?;
        // The processors and the cgroup of the processes that set values.
        process.confine(confinement.cgroup.as_ref(), &confinement.cpus)?;
        let started =
            process.await_start(|| Ok(sluiced_protocol::call(&socket, &Request::Status)?));
        started.with_context(|| {
            let text = fs::read_to_string(&log).unwrap_or_default();
            format!("sluiced did not start: {}", text.trim_end())
        })?;
        Ok(Self {
            process,
            socket,
            database: store.join("maps.db"),
        })
    }

    pub fn cpu_ns(&self) -> Result<u64> {
        clock::cpu_ns_of(self.process.pid())
    }

    pub fn commits(&self) -> Result<u32> {
        commits(&self.database)
    }

    /// Waits until it commits no more: it deletes the entries of unlinked maps later.
    pub fn await_idle(&self) -> Result<()> {
        let deadline = Deadline::after(START_TIMEOUT);
        let mut before = None;
        loop {
            let now = Some(self.commits()?);
            if now == before || deadline.passed() {
                return Ok(());
            }
            before = now;
            interruptible_sleep(IDLE)?;
        }
    }

    pub fn call(&self, request: &Request) -> Result<()> {
        let response = sluiced_protocol::call(&self.socket, request);
        let outcomes = match response.context("sluiced does not answer")? {
            Response::Done(outcomes) => outcomes,
            Response::Failed(failure) => bail!("sluiced: {}", failure.text),
            Response::Status(_) => bail!("sluiced answered another request"),
        };
        let failed = outcomes.into_iter().find_map(|outcome| outcome.error);
        failed.map_or(Ok(()), |error| bail!("sluiced: {error}"))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.process.terminate(STOP_TIMEOUT);
    }
}

/// The transactions that changed a database, modulo 2^32. The index of its write-ahead log has this counter, twice, in the byte
/// order of the machine. It also continues after a checkpoint (sqlite.org/walformat.html, section 2.1).
fn commits(database: &Path) -> Result<u32> {
    const TRIES: usize = 1000;
    let path = database.with_extension("db-shm");
    for _ in 0..TRIES {
        let mut headers = [[0; 48]; 2];
        File::open(&path)
            .and_then(|mut file| file.read_exact(headers.as_flattened_mut()))
            .with_context(|| format!("cannot read {}", path.display()))?;
        let [first, second] = headers;
        // Unless it is being written.
        if first == second {
            return Ok(u32::from_ne_bytes(first[8..12].try_into()?));
        }
    }
    bail!("{} is always being written", path.display())
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;
    use crate::mechanisms::temp_paths::private_directory;

    #[test]
    fn each_commit_is_counted_once_also_across_checkpoints() {
        let directory = private_directory(&std::env::temp_dir()).unwrap();
        let path = directory.path().join("maps.db");
        let connection = Connection::open(&path).unwrap();
        let run = |sql| connection.execute_batch(sql).unwrap();
        run("PRAGMA journal_mode = WAL; CREATE TABLE numbers (a)");
        let before = commits(&path).unwrap();
        for round in 1..=30 {
            run("BEGIN; INSERT INTO numbers VALUES (1); INSERT INTO numbers VALUES (2); COMMIT");
            // No changes: not counted.
            run("SELECT count(*) FROM numbers");
            assert_eq!(commits(&path).unwrap() - before, round);
            if round == 10 {
                run("PRAGMA wal_checkpoint(TRUNCATE)");
            }
        }
    }
}
