// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon of the durable maps, with a store and a socket of its own.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sluice_testkit::clock;
use sluice_testkit::time::Deadline;
use sluiced_protocol::{MapName, Request, Response, Selection};

use super::commits;
use crate::suites::setup::Confinement;

const START_TIMEOUT: Duration = Duration::from_secs(30);
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
const RETRY_INTERVAL: Duration = Duration::from_millis(5);
/// Without a commit for so long, it does nothing.
const IDLE: Duration = Duration::from_millis(100);

/// Ended when dropped, and when this process ends.
pub struct Daemon {
    process: Child,
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
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?);
        // SAFETY: the closure makes a single system call between fork and exec.
        unsafe { command.pre_exec(|| Ok(set_pdeathsig(Signal::SIGKILL)?)) };
        let process = command
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let mut daemon = Self {
            process,
            socket,
            database: store.join("maps.db"),
        };
        daemon.confine(confinement)?;
        daemon.await_answer(&log)?;
        Ok(daemon)
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.process.id() as i32)
    }

    /// To the processors and the cgroup of the processes that set values.
    fn confine(&self, confinement: &Confinement) -> Result<()> {
        if let Some(cgroup) = &confinement.cgroup {
            cgroup.adopt(self.pid())?;
        }
        let mut cpus = CpuSet::new();
        for cpu in confinement.cpus {
            cpus.set(cpu)?;
        }
        sched_setaffinity(self.pid(), &cpus).context("cannot pin the daemon to processors")
    }

    fn await_answer(&mut self, log: &Path) -> Result<()> {
        let deadline = Deadline::after(START_TIMEOUT);
        while sluiced_protocol::call(&self.socket, &Request::Status).is_err() {
            let ended = self.process.try_wait()?;
            if ended.is_some() || deadline.passed() {
                let text = fs::read_to_string(log).unwrap_or_default();
                bail!("sluiced did not start: {}", text.trim_end());
            }
            sleep(RETRY_INTERVAL);
        }
        Ok(())
    }

    pub fn cpu_ns(&self) -> Result<u64> {
        clock::cpu_ns_of(self.pid())
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
        // It has ended if it cannot be killed.
        let _ = kill(self.pid(), Signal::SIGTERM);
        let deadline = Deadline::after(STOP_TIMEOUT);
        while matches!(self.process.try_wait(), Ok(None)) && !deadline.passed() {
            sleep(RETRY_INTERVAL);
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
