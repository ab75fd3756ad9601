// SPDX-License-Identifier: MIT OR Apache-2.0
//! An event between two processes: notified once or more, awaited with a deadline. Created before the fork.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use anyhow::{Context, Result, bail};
use nix::fcntl::OFlag;
use nix::unistd::{pipe2, read, write};

use super::poll;
use super::time::Deadline;

pub struct Event {
    reader: OwnedFd,
    writer: OwnedFd,
}

impl Event {
    pub fn new() -> Result<Self> {
        let (reader, writer) = pipe2(OFlag::O_CLOEXEC).context("creating a pipe for events")?;
        Ok(Event { reader, writer })
    }

    /// The files that a child which notifies or awaits it must inherit.
    pub fn fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.reader.as_fd(), self.writer.as_fd()]
    }

    pub fn write_end(&self) -> BorrowedFd<'_> {
        self.writer.as_fd()
    }

    pub fn notify(&self) -> Result<()> {
        write(&self.writer, b"!").context("notifying an event")?;
        Ok(())
    }

    pub fn wait(&self, what: &str) -> Result<()> {
        let deadline = Deadline::for_event();
        if !poll::wait_readable(&self.reader, &deadline)? {
            bail!("{what}: not within {:?}", deadline.span());
        }
        read(&self.reader, &mut [0]).with_context(|| format!("reading the event: {what}"))?;
        Ok(())
    }
}
