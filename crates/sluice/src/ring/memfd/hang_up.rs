// SPDX-License-Identifier: MIT OR Apache-2.0
//! Detection of a hang-up of the socket, with as few system calls as possible.

use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

/// The state of the socket. A hang-up is final.
#[derive(Debug)]
pub(super) struct HangUp {
    seen: bool,
    /// The time of the last check.
    looked: Timespec,
}

impl HangUp {
    pub fn new() -> Self {
        Self {
            seen: false,
            looked: Timespec::default(),
        }
    }

    /// Whether a hang-up is known, without a system call.
    pub fn is_known(&self) -> bool {
        self.seen
    }

    /// Checks the socket once per tick of the coarse clock, a few milliseconds; between ticks it costs a few nanoseconds.
    pub fn look(&mut self, socket: &OwnedFd) -> bool {
        let now = clock_gettime(ClockId::MonotonicCoarse);
        if !self.seen && now != self.looked {
            self.looked = now;
            self.seen = has_hung_up(socket).unwrap_or(false);
        }
        self.seen
    }

    /// Records a hang-up that was detected elsewhere.
    pub fn note(&mut self) {
        self.seen = true;
    }
}

/// Whether the peer has closed its end or shut down its sending half, or its process has ended.
pub(super) fn has_hung_up(socket: &OwnedFd) -> Result<bool, Errno> {
    let mut asked = [PollFd::new(socket, PollFlags::RDHUP)];
    rustix::io::retry_on_intr(|| poll(&mut asked, Some(&Timespec::default())))?;
    Ok(!asked[0].revents().is_empty())
}
