// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon of the durable maps, with a store and a socket of its own.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use sluice_testkit::clock;
use sluice_testkit::time::Deadline;
use sluiced_protocol::{MapName, Request, Response, Selection};

use super::commits;
use crate::harness::server::{START_TIMEOUT, Server};
use crate::suites::setup::Confinement;

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
    /// Returns as soon as it answers.
    pub fn start(program: &Path, folder: &Path, confinement: &Confinement) -> Result<Self> {
        let (store, socket) = (folder.join("store"), folder.join("sluiced.sock"));
        let log = folder.join("sluiced.log");
        let mut command = Command::new(program);
        command
            .arg("--store")
            .arg(&store)
            .arg("--socket")
            .arg(&socket)
            .stderr(File::create(&log)?);
        let mut process = Server::spawn(&mut command)?;
        // The processors and the cgroup of the processes that set values.
        process.confine(confinement.cgroup.as_ref(), &confinement.cpus)?;
        process
            .await_start(|| Ok(sluiced_protocol::call(&socket, &Request::Status)?))
            .with_context(|| {
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

    /// All of its commits.
    pub fn commits(&self) -> Result<u32> {
        commits::count(&self.database)
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
            crate::suites::setup::interruptible_sleep(IDLE)?;
        }
    }

    /// Makes the kernel's copy of a stored map.
    pub fn attach(&self, map: &MapName) -> Result<()> {
        self.call(&Request::Attach(Selection::Map(map.clone())))
    }

    /// Drops the kernel's copy of a map, which stays stored.
    pub fn detach(&self, map: &MapName) -> Result<()> {
        self.call(&Request::Detach(Selection::Map(map.clone())))
    }

    fn call(&self, request: &Request) -> Result<()> {
        let response = sluiced_protocol::call(&self.socket, request);
        match response.context("sluiced does not answer")? {
            Response::Done(outcomes) => {
                let failed = outcomes.into_iter().find_map(|outcome| outcome.error);
                failed.map_or(Ok(()), |error| bail!("sluiced: {error}"))
            }
            Response::Failed(failure) => bail!("sluiced: {}", failure.text),
            Response::Status(_) => bail!("sluiced answered another request"),
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.process.terminate(STOP_TIMEOUT);
    }
}
