// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that serve the processes of a measurement.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use sluice_testkit::cgroup::Cgroup;
use sluice_testkit::interrupt;
use sluice_testkit::time::Deadline;

use super::pinning::confine_thread;

/// Also a slow or busy machine starts a server within this time, or connects to one.
pub const START_TIMEOUT: Duration = Duration::from_secs(60);
const RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// Whether a program with this name is in PATH. It is not executed, because it might not end.
pub fn is_installed(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|directory| directory.join(program).exists())
}

/// Killed when dropped, and when this process ends.
pub struct Server(Child);

impl Server {
    /// Its output is discarded.
    pub fn spawn(command: &mut Command) -> Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::null());
        // SAFETY: the closure makes a single system call between fork and exec.
        unsafe { command.pre_exec(|| Ok(set_pdeathsig(Signal::SIGKILL)?)) };
        let process = command.spawn();
        let name = command.get_program().to_string_lossy();
        let process = process.with_context(|| format!("cannot start {name}"));
        process.map(Self)
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.0.id() as i32)
    }

    pub fn confine(&self, cgroup: Option<&Cgroup>, cpus: &[usize]) -> Result<()> {
        if let Some(cgroup) = cgroup {
            cgroup.adopt(self.pid())?;
        }
        confine_thread(self.pid(), cpus)
    }

    pub fn await_start<T>(&mut self, call: impl FnMut() -> Result<T>) -> Result<T> {
        retry(START_TIMEOUT, call, || self.expect_running())
    }

    fn expect_running(&mut self) -> Result<()> {
        match self.0.try_wait()? {
            Some(status) => bail!("it ended: {status}"),
            None => Ok(()),
        }
    }

    pub fn terminate(&mut self, timeout: Duration) {
        // It has ended if it cannot be signalled.
        let _ = nix::sys::signal::kill(self.pid(), Signal::SIGTERM);
        let deadline = Deadline::after(timeout);
        while self.expect_running().is_ok() && !deadline.passed() {
            sleep(RETRY_INTERVAL);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended if it cannot be killed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Repeats a call of a server that another process starts.
pub fn await_start<T>(call: impl FnMut() -> Result<T>) -> Result<T> {
    retry(START_TIMEOUT, call, || Ok(()))
}

fn retry<T>(
    timeout: Duration,
    mut call: impl FnMut() -> Result<T>,
    mut expect_running: impl FnMut() -> Result<()>,
) -> Result<T> {
    let deadline = Deadline::after(timeout);
    loop {
        interrupt::check()?;
        match call() {
            Ok(answer) => return Ok(answer),
            Err(error) if deadline.passed() => {
                return Err(error.context(format!("no answer within {timeout:?}")));
            }
            Err(_) => expect_running()?,
        }
        sleep(RETRY_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_ends_or_never_answers_is_given_up() {
        for (script, timeout, expected) in [
            ("exec sleep 1000", 20, "no answer within 20ms: no listener"),
            ("exit 1", 60_000, "it ended: exit status: 1"),
        ] {
            let mut server = Server::spawn(Command::new("sh").args(["-c", script])).unwrap();
            let call = || -> Result<()> { bail!("no listener") };
            let timeout = Duration::from_millis(timeout);
            let outcome = retry(timeout, call, || server.expect_running());
            assert_eq!(format!("{:#}", outcome.unwrap_err()), expected);
        }
    }
}
