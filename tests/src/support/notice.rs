// SPDX-License-Identifier: MIT OR Apache-2.0
//! A word between two processes: given once or more, waited for with a deadline. Made before the fork.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use anyhow::{Context, Result, bail};
use nix::fcntl::OFlag;
use nix::unistd::{pipe2, read, write};

use super::poll;
use super::time::Deadline;

pub struct Notice {
    reader: OwnedFd,
    writer: OwnedFd,
}

impl Notice {
    pub fn new() -> Result<Self> {
        let (reader, writer) = pipe2(OFlag::O_CLOEXEC).context("making a pipe for notices")?;
        Ok(Notice { reader, writer })
    }

    /// What a child that gives or awaits it must keep open.
    pub fn fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.reader.as_fd(), self.writer.as_fd()]
    }

    pub fn giver(&self) -> BorrowedFd<'_> {
        self.writer.as_fd()
    }

    pub fn give(&self) -> Result<()> {
        write(&self.writer, b"!").context("giving a notice")?;
        Ok(())
    }

    pub fn wait(&self, what: &str) -> Result<()> {
        let deadline = Deadline::for_event();
        if !poll::wait_readable(&self.reader, &deadline)? {
            bail!("{what}: not within {:?}", deadline.span());
        }
        read(&self.reader, &mut [0]).with_context(|| format!("taking the notice: {what}"))?;
        Ok(())
    }
}
