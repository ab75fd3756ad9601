// SPDX-License-Identifier: MIT OR Apache-2.0
//! A forked process. It ends no later than the value that holds it.

use std::any::Any;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid};

use crate::poll;
use crate::time::Deadline;

/// Killed and reaped when dropped.
pub struct Process {
    pid: Pid,
    pidfd: OwnedFd,
    reaped: bool,
}

pub enum Fork {
    Parent(Process),
    /// Ends with `exit`, and does not unwind: what the callers' frames would clean up belongs to the parent.
    Child,
}

pub fn fork() -> Result<Fork> {
    // SAFETY: callers have one thread, so no lock is held by a thread that the child does not have.
    let pid = match unsafe { nix::unistd::fork() }.context("cannot fork")? {
        ForkResult::Child => return Ok(Fork::Child),
        ForkResult::Parent { child } => child,
    };
    match open_pidfd(pid) {
        Ok(pidfd) => Ok(Fork::Parent(Process {
            pid,
            pidfd,
            reaped: false,
        })),
        Err(error) => {
            // Without a descriptor nothing would wait for it.
            let _ = kill(pid, Signal::SIGKILL);
            let _ = waitpid(pid, None);
            Err(error)
        }
    }
}

/// What `body` returned, or the text of its error or of its panic.
pub fn outcome<T>(body: impl FnOnce() -> Result<T>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(result) => result.map_err(|error| format!("{error:#}")),
        Err(panic) => Err(format!("panicked: {}", panic_message(&*panic))),
    }
}

pub fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or(panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
        .to_owned()
}

/// Ends a forked process.
pub fn exit(status: i32) -> ! {
    // SAFETY: _exit only ends this process; exit would flush buffers of the parent.
    unsafe { libc::_exit(status) }
}

pub fn open_pidfd(pid: Pid) -> Result<OwnedFd> {
    // SAFETY: takes two numbers.
    let fd = Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0) })
        .with_context(|| format!("cannot open a pidfd of process {pid}"))?;
    // SAFETY: the kernel just returned this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

impl Process {
    pub fn pid(&self) -> Pid {
        self.pid
    }

    pub fn has_ended(&self) -> Result<bool> {
        Ok(poll::wait(&self.pidfd, libc::POLLIN, 0).context("cannot poll a pidfd")? != 0)
    }

    pub fn signal(&self, signal: Signal) -> nix::Result<()> {
        kill(self.pid, signal)
    }

    /// Whether it has ended by the deadline. Does not reap it, so its pid is not reused.
    pub fn wait_end(&self, deadline: &Deadline) -> Result<bool> {
        poll::wait_readable(&self.pidfd, deadline)
    }

    /// How it ended; None if it has not by the deadline.
    pub fn wait(&mut self, deadline: &Deadline) -> Result<Option<WaitStatus>> {
        if !self.wait_end(deadline)? {
            return Ok(None);
        }
        let status =
            waitpid(self.pid, None).with_context(|| format!("cannot reap process {}", self.pid))?;
        self.reaped = true;
        Ok(Some(status))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.reaped {
            return;
        }
        // An error means that it has already ended. One that survives SIGKILL remains for the test runner to find.
        let _ = self.signal(Signal::SIGKILL);
        let _ = self.wait(&Deadline::for_event());
    }
}
