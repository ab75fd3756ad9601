// SPDX-License-Identifier: MIT OR Apache-2.0
//! The endpoint of a ring or a feed, on which a side sleeps and wakes its peer. The module stores the end of a side in its control page.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use sluice_abi as abi;
use sluice_ring::sync::Ordering;
use sluice_ring::{Ctrl, End, PeerState, stored_peer_state};

use crate::sys::{ioctl_once, ioctl_without_argument};

/// The end of a sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slept {
    Woken,
    TimedOut,
}

/// The value of `timeout_ns` for a wait without a timeout.
const NO_TIMEOUT: u64 = u64::MAX;

#[derive(Debug)]
pub(crate) struct Device {
    endpoint: OwnedFd,
    end_hidden: bool,
}

impl Device {
    pub fn new(endpoint: OwnedFd) -> Self {
        Self {
            endpoint,
            end_hidden: false,
        }
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.endpoint.as_fd()
    }

    pub fn peer_state(&self, own: &Ctrl, peer: &Ctrl) -> PeerState {
        if self.end_hidden {
            return PeerState::Hidden;
        }
        match (stored_peer_state(peer), own.end()) {
            // The module has stored it in both pages, and the peer may have removed it from its own.
            (PeerState::Active, Some(End::Destroyed)) => PeerState::Destroyed,
            (PeerState::Active, Some(_)) => PeerState::Detached,
            (state, _) => state,
        }
    }

    /// Whether the module has reported an end of the peer that its control page does not contain.
    pub fn is_end_hidden(&self) -> bool {
        self.end_hidden
    }

    pub fn sleep(
        &mut self,
        own: &Ctrl,
        peer: &Ctrl,
        seq: u32,
        limit: Option<Duration>,
    ) -> io::Result<Slept> {
        let limit = limit.and_then(|limit| u64::try_from(limit.as_nanos()).ok());
        let mut wait = abi::RingWait::new(seq, limit.unwrap_or(NO_TIMEOUT));
        let Err(error) = ioctl_once(self.fd(), abi::RING_WAIT, &mut wait) else {
            // Otherwise the next sleep would end at once, too.
            self.end_hidden |=
                peer.wake_seq.load(Ordering::Relaxed) == seq && is_end_missing(own, peer);
            return Ok(Slept::Woken);
        };
        match error.raw_os_error() {
            Some(libc::EINTR) => Ok(Slept::Woken),
            Some(libc::ETIMEDOUT) => Ok(Slept::TimedOut),
            // This side has ended; its control page says how.
            Some(libc::EPIPE) if own.is_closed() => Ok(Slept::Woken),
            // A feed has rejected this consumer.
            Some(libc::EPROTO) if peer.is_closed() => Ok(Slept::Woken),
            _ => Err(error),
        }
    }

    /// Checks whether the descriptor is readable for ever because of an end of the peer that its control page does not contain.
    pub fn check_hidden_end(&mut self, own: &Ctrl, peer: &Ctrl) {
        let mut fds = [PollFd::new(&self.endpoint, PollFlags::RDHUP)];
        let polled = retry_on_intr(|| poll(&mut fds, Some(&Timespec::default())));
        let hung_up = fds[0]
            .revents()
            .intersects(PollFlags::RDHUP | PollFlags::HUP);
        // The module stores the end before it reports it.
        self.end_hidden |= polled.is_ok() && hung_up && is_end_missing(own, peer);
    }

    /// Returns false if a retry may help.
    pub fn wake(&self) -> bool {
        match ioctl_without_argument(self.fd(), abi::RING_WAKE) {
            Ok(_) => true,
            // This side has ended, which has woken the peer.
            Err(error) => error.raw_os_error() == Some(libc::EPIPE),
        }
    }

    /// Ends this side also if another process still has the endpoint, such as a forked child.
    pub fn detach(&self) {
        // It fails only if the side has ended.
        let _ = ioctl_without_argument(self.fd(), abi::RING_DETACH);
    }
}

fn is_end_missing(own: &Ctrl, peer: &Ctrl) -> bool {
    !own.is_closed() && !peer.is_closed()
}
