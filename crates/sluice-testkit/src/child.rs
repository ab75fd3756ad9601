// SPDX-License-Identifier: MIT OR Apache-2.0
//! A forked child that runs a closure and reports what it returned.
//!
//! A child starts with none of the parent's files except the listed ones: an endpoint that a child holds
//! unintentionally would change the result of the test.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use anyhow::{Context, Result, anyhow, bail};
use nix::fcntl::OFlag;
use nix::sys::signal::Signal;
use nix::sys::wait::WaitStatus;
use nix::unistd::{Pid, pipe2};
use serde::{Serialize, de::DeserializeOwned};

use crate::poll;
use crate::proc::{self, Call};
use crate::process::{self, Fork, Process};
use crate::time::{self, Deadline};

pub struct Child<T> {
    what: String,
    process: Process,
    report: File,
    returns: PhantomData<T>,
}

/// Runs `body` in a child that inherits no file. `what` names the child in failures.
pub fn spawn<T, F>(what: &str, body: F) -> Result<Child<T>>
where
    T: Serialize + DeserializeOwned,
    F: FnOnce() -> Result<T>,
{
    spawn_keeping(what, &[], body)
}

/// As `spawn`, with the files in `keep` open in the child.
pub fn spawn_keeping<T, F>(what: &str, keep: &[BorrowedFd], body: F) -> Result<Child<T>>
where
    T: Serialize + DeserializeOwned,
    F: FnOnce() -> Result<T>,
{
    let (report, report_to) = pipe2(OFlag::O_CLOEXEC).context("cannot create a pipe")?;
    match process::fork().with_context(|| what.to_owned())? {
        Fork::Parent(process) => Ok(Child {
            what: what.to_owned(),
            process,
            report: report.into(),
            returns: PhantomData,
        }),
        Fork::Child => {
            let kept = keep.iter().map(|fd| fd.as_raw_fd());
            close_all_but(kept.chain([report_to.as_raw_fd()]));
            std::mem::forget(report);
            run(body, report_to)
        }
    }
}

fn run<T: Serialize>(body: impl FnOnce() -> Result<T>, report_to: OwnedFd) -> ! {
    let sent = serde_json::to_vec(&process::outcome(body))
        .map_err(std::io::Error::from)
        .and_then(|bytes| File::from(report_to).write_all(&bytes));
    process::exit(if sent.is_ok() { 0 } else { 99 })
}

/// Closes every file above standard error that is not listed.
fn close_all_but(keep: impl Iterator<Item = RawFd>) {
    let mut from = 3;
    for fd in keep.collect::<BTreeSet<_>>() {
        if fd > from {
            close_range(from, fd - 1);
        }
        from = from.max(fd + 1);
    }
    close_range(from, RawFd::MAX);
}

fn close_range(first: RawFd, last: RawFd) {
    // SAFETY: closes descriptors that this process, a new child, never uses.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
}

impl<T: DeserializeOwned> Child<T> {
    pub fn pid(&self) -> Pid {
        self.process.pid()
    }

    pub fn has_ended(&self) -> Result<bool> {
        self.process.has_ended()
    }

    /// Whether it has a result, or has ended without one.
    pub fn has_reported(&self) -> Result<bool> {
        Ok(poll::wait(&self.report, libc::POLLIN, 0).context("cannot poll a report")? != 0)
    }

    pub fn wait_asleep_in(&self, call: Call) -> Result<()> {
        proc::wait_asleep_in(self.pid(), call).with_context(|| self.what.clone())
    }

    /// Waits for the grace period, in which a wrong wake-up would show, then fails unless the child still sleeps in
    /// this call.
    pub fn expect_still_asleep_in(&self, call: Call) -> Result<()> {
        time::wait_grace_period();
        if self.has_ended()? {
            bail!(
                "{}: ended; expected it to stay asleep in {call:?}",
                self.what
            );
        }
        // It may run for a moment after a spurious wake-up, by a signal or by the inspection itself.
        self.wait_asleep_in(call)
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.process
            .signal(signal)
            .with_context(|| format!("{}: cannot send {signal}", self.what))
    }

    /// Kills the child and waits until it is gone.
    pub fn kill(mut self) -> Result<()> {
        self.signal(Signal::SIGKILL)?;
        self.reap().map(drop)
    }

    /// Waits until the child has ended in any way.
    pub fn wait_end(mut self) -> Result<WaitStatus> {
        self.reap()
    }

    /// Waits for the result of the child.
    pub fn finish(mut self) -> Result<T> {
        let bytes = self.read_report()?;
        let status = self.reap()?;
        if bytes.is_empty() {
            bail!("{}: ended without a report: {status:?}", self.what);
        }
        let result: Result<T, String> = serde_json::from_slice(&bytes)
            .with_context(|| format!("{}: the report is cut off ({status:?})", self.what))?;
        result.map_err(|message| anyhow!("{}: {message}", self.what))
    }

    fn read_report(&self) -> Result<Vec<u8>> {
        let deadline = Deadline::for_event();
        poll::read_to_end(&self.report, |report| {
            match poll::wait_readable(report, &deadline)? {
                true => Ok(()),
                false => bail!(self.overdue(&deadline)),
            }
        })
    }

    fn reap(&mut self) -> Result<WaitStatus> {
        let deadline = Deadline::for_event();
        let status = self
            .process
            .wait(&deadline)
            .with_context(|| self.what.clone())?;
        status.with_context(|| self.overdue(&deadline))
    }

    fn overdue(&self, deadline: &Deadline) -> String {
        format!(
            "{}: expected to end within {:?}; {}",
            self.what,
            deadline.span(),
            proc::describe(self.pid())
        )
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::workers::serial;

    #[test]
    fn a_child_reports_what_it_returned() {
        let _serial = serial();
        let child = spawn("adder", || Ok(1 + 1)).expect("fork");
        assert_eq!(child.finish().expect("report"), 2);
    }

    #[test]
    fn a_report_may_be_larger_than_a_pipe() {
        let _serial = serial();
        let child = spawn("writer", || Ok("x".repeat(1 << 20))).expect("fork");
        assert_eq!(child.finish().expect("report").len(), 1 << 20);
    }

    #[test]
    fn a_child_reports_why_it_failed() {
        let _serial = serial();
        let child: Child<()> = spawn("failer", || bail!("no luck")).expect("fork");
        let message = child.finish().expect_err("failed").to_string();
        assert_eq!(message, "failer: no luck");
    }

    #[test]
    fn a_killed_child_is_told_from_one_that_reports() {
        let _serial = serial();
        let child: Child<()> = spawn("sleeper", || {
            loop {
                std::thread::park();
            }
        })
        .expect("fork");
        child.signal(Signal::SIGTERM).expect("signal");
        let message = child.finish().expect_err("it was killed").to_string();
        assert!(message.contains("SIGTERM"), "{message}");
    }

    #[test]
    fn a_child_keeps_only_the_files_it_is_told_to() {
        let _serial = serial();
        let (reader, writer) = pipe2(OFlag::O_CLOEXEC).expect("pipe");
        let open = |fd: RawFd| {
            nix::fcntl::fcntl(
                // SAFETY: only tests whether it is open.
                unsafe { BorrowedFd::borrow_raw(fd) },
                nix::fcntl::FcntlArg::F_GETFD,
            )
        };
        let (kept, dropped) = (writer.as_raw_fd(), reader.as_raw_fd());
        let child = spawn_keeping("keeper", &[writer.as_fd()], move || {
            Ok((open(kept).is_ok(), open(dropped).is_ok()))
        });
        assert_eq!(
            child.expect("fork").finish().expect("report"),
            (true, false)
        );
    }
}
