// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a ring is carried by: how a side sleeps, wakes its peer, and learns of its end. Only slow paths call it.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use sluice_ring::sync::AtomicU32;
use sluice_ring::{Ctrl, End, PeerState, ProtocolViolation, WakeMethod, Waker, peer_state};

use super::device::has_peer;
use super::error::SendError;
use super::membarrier;
use super::memfd::Memfd;
use super::role::Role;
use crate::shared::device::{Device, Slept};

#[derive(Debug)]
pub(super) enum Carrier {
    Memfd(Memfd),
    Device(Device),
}

/// What is known after wake-ups were taken from the descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Drained {
    Empty,
    /// There may be more, more than a ring needs.
    More,
    HungUp,
}

impl Carrier {
    pub fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Memfd(memfd) => memfd.fd(),
            Self::Device(device) => device.fd(),
        }
    }

    /// The method of the first sleep in a wait. After a timeout it is the descriptor.
    pub fn first_method(&self) -> WakeMethod {
        match self {
            Self::Memfd(_) => WakeMethod::Futex,
            Self::Device(_) => WakeMethod::Descriptor,
        }
    }

    /// Checks the socket, if there is one.
    pub fn peer_state(&mut self, own: &Ctrl, peer: &Ctrl) -> PeerState {
        match self {
            Self::Memfd(memfd) => peer_state(peer, || memfd.look()),
            Self::Device(device) => device.peer_state(own, peer),
        }
    }

    /// Whether the peer of this role has come.
    pub fn has_peer(&self, role: Role) -> io::Result<bool> {
        match self {
            // The handshake was with it.
            Self::Memfd(_) => Ok(true),
            Self::Device(device) => has_peer(device.fd(), role),
        }
    }

    /// Whether a hang-up, or a hidden end, is known, without a system call.
    pub fn is_hung_up(&self) -> bool {
        match self {
            Self::Memfd(memfd) => memfd.is_hung_up(),
            Self::Device(device) => device.is_end_hidden(),
        }
    }

    /// The meaning of a hang-up without a close.
    pub fn hung_up_error(&self) -> SendError {
        match self {
            Self::Memfd(_) => SendError::PeerDied,
            Self::Device(_) => ProtocolViolation::EndHidden.into(),
        }
    }

    /// The meaning of an end that the peer's control structure says. Over memfd only the peer writes it, and each is a close.
    pub fn interpret(&self, end: End) -> End {
        match self {
            Self::Memfd(_) => End::Closed,
            Self::Device(_) => end,
        }
    }

    /// Sleeps after Parker::prepare_park(), which returned `seq`.
    pub fn sleep(
        &mut self,
        method: WakeMethod,
        own: &Ctrl,
        peer: &Ctrl,
        seq: u32,
        limit: Option<Duration>,
    ) -> io::Result<Slept> {
        match self {
            Self::Memfd(memfd) => memfd.sleep(method, &peer.wake_seq, seq, limit),
            Self::Device(device) => device.sleep(own, peer, seq, limit),
        }
    }

    /// Follows a wait for the descriptor that ended without a wake-up.
    pub fn check_hidden_end(&mut self, own: &Ctrl, peer: &Ctrl) {
        match self {
            // The socket is read.
            Self::Memfd(_) => {}
            Self::Device(device) => device.check_hidden_end(own, peer),
        }
    }

    /// Takes wake-ups from the descriptor, up to a limit. Those of the module are acknowledged in the control structure.
    pub fn drain(&mut self) -> Drained {
        match self {
            Self::Memfd(memfd) => memfd.drain(),
            Self::Device(_) => Drained::Empty,
        }
    }

    /// Follows the close of this side.
    pub fn detach(&self) {
        match self {
            // The socket hangs up when it is dropped.
            Self::Memfd(_) => {}
            Self::Device(device) => device.detach(),
        }
    }
}

impl Waker for Carrier {
    fn heavy_barrier(&self) -> bool {
        membarrier::heavy_barrier()
    }

    fn wake(&self, method: WakeMethod, wake_seq: &AtomicU32) -> bool {
        match self {
            Self::Memfd(memfd) => memfd.wake(method, wake_seq),
            Self::Device(device) => device.wake(),
        }
    }
}
