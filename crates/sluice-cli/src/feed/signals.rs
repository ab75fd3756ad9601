// SPDX-License-Identifier: MIT OR Apache-2.0

use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::signals::termination;

/// The signals that end a measurement instead of the process.
pub struct EndSignals {
    descriptor: SignalFd,
}

impl EndSignals {
    /// Must be called before other threads start, because threads inherit the signal mask.
    pub fn block() -> Result<Self> {
        let signals = termination();
        signals.thread_block().context("cannot block signals")?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let descriptor = SignalFd::with_flags(&signals, flags);
        Ok(Self {
            descriptor: descriptor.context("cannot wait for signals")?,
        })
    }

    /// Waits for this time, and returns whether a signal came.
    pub fn wait(&self, time: Duration) -> Result<bool> {
        let timeout = PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(self.descriptor.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, timeout) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::EINTR) => Ok(false),
            Err(error) => Err(error).context("cannot wait for signals"),
        }
    }
}
