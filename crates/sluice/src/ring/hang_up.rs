// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether the peer's end of the socket is gone, asked of the kernel only as often as that may have changed.

use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

/// Remembers a hang-up, which is final.
#[derive(Debug)]
pub(super) struct HangUp {
    seen: bool,
    /// When the socket was last looked at.
    looked: Timespec,
}

impl HangUp {
    pub fn new() -> Self {
        Self {
            seen: false,
            looked: Timespec::default(),
        }
    }

    /// What is known without a system call.
    #[inline]
    pub fn is_known(&self) -> bool {
        self.seen
    }

    /// Looks at the socket once per tick of the coarse clock, a few milliseconds: between ticks that costs a few nanoseconds.
    pub fn look(&mut self, socket: &OwnedFd) -> bool {
        let now = clock_gettime(ClockId::MonotonicCoarse);
        if !self.seen && now != self.looked {
            self.looked = now;
            self.seen = has_hung_up(socket).unwrap_or(false);
        }
        self.seen
    }

    /// It was found in another way.
    pub fn note(&mut self) {
        self.seen = true;
    }
}

/// The peer has closed its end or shut down its sending half, or its process has ended.
pub(super) fn has_hung_up(socket: &OwnedFd) -> Result<bool, Errno> {
    let mut asked = [PollFd::new(socket, PollFlags::RDHUP)];
    rustix::io::retry_on_intr(|| poll(&mut asked, Some(&Timespec::default())))?;
    Ok(!asked[0].revents().is_empty())
}
