// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rings of the module: one endpoint, whose regions are mapped, and on which a side waits and wakes. The module stores the end
//! of a side in its control page.

mod info;
mod setup;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use sluice_abi as abi;
use sluice_ring::Ctrl;

use super::carrier::Slept;
use super::role::Role;
use crate::control::{ioctl_once, ioctl_without_argument};

pub use info::{RingInfo, RoleState};

/// The value of `timeout_ns` for a wait without a timeout.
const NO_TIMEOUT: u64 = u64::MAX;

#[derive(Debug)]
pub(super) struct Device {
    endpoint: OwnedFd,
}

impl Device {
    fn new(endpoint: OwnedFd) -> Self {
        Self { endpoint }
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.endpoint.as_fd()
    }

    pub fn sleep(&self, peer: &Ctrl, seq: u32, limit: Option<Duration>) -> io::Result<Slept> {
        let limit = limit.and_then(|limit| u64::try_from(limit.as_nanos()).ok());
        let mut wait = abi::RingWait::new(seq, limit.unwrap_or(NO_TIMEOUT));
        let Err(error) = ioctl_once(self.fd(), abi::RING_WAIT, &mut wait) else {
            return Ok(Slept::Woken);
        };
        match error.raw_os_error() {
            Some(libc::EINTR) => Ok(Slept::Woken),
            Some(libc::ETIMEDOUT) => Ok(Slept::TimedOut),
            // A destruction ends both sides.
            Some(libc::EPIPE) if peer.is_closed() => Ok(Slept::Woken),
            _ => Err(error),
        }
    }

    /// Returns false if a retry may help.
    pub fn wake(&self) -> bool {
        match ioctl_without_argument(self.fd(), abi::RING_WAKE) {
            Ok(_) => true,
            // This side has ended, which has woken the peer.
            Err(error) => error.raw_os_error() == Some(libc::EPIPE),
        }
    }

    /// Whether a process has opened the side of the peer in this session.
    pub fn has_peer(&self, role: Role) -> io::Result<bool> {
        let session = info::session(self.fd())?;
        let peer = match role {
            Role::Producer => session.consumer,
            Role::Consumer => session.producer,
        };
        Ok(RoleState::from(peer) != RoleState::Vacant)
    }

    /// Ends this side also if another process still has the endpoint, such as a forked child.
    pub fn detach(&self) {
        // It fails only if the side has ended.
        let _ = ioctl_without_argument(self.fd(), abi::RING_DETACH);
    }
}
