// SPDX-License-Identifier: MIT OR Apache-2.0
//! The errors of a feed. Each message is one line: what failed, the cause, what to do.

use std::io::{self, ErrorKind};
use std::time::Duration;

use sluice_ring::{InvalidCapacity, ProtocolViolation};

use crate::error::into_io;
use crate::ring::SystemError;

/// Why a feed cannot be received, or no packet was received.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecvError {
    #[error("the feed has no packet; try again later, or use a blocking call")]
    Empty,

    #[error(
        "timeout: the feed had no packet for {0:?}; use a longer timeout, or check the publisher"
    )]
    TimedOut(Duration),

    /// The publisher has destroyed the feed.
    #[error(
        "the feed has ended, and all packets were received; open it again if it is created again"
    )]
    Closed,

    #[error(
        "the module rejected this consumer, because it stored an invalid position; open the feed again"
    )]
    Rejected,

    #[error(
        "another endpoint receives the feed, or this one in the other way; wait until it is closed"
    )]
    Busy,

    #[error("the descriptor is not an endpoint of a feed; pass that of a sluice::feed::Feed")]
    NotAFeed,

    #[error(
        "the endpoint is open for reading only; open it for reading and writing to map the feed"
    )]
    ReadOnly,

    #[error("invalid packet of {len} bytes; use the module and the library of one version")]
    InvalidPacket { len: usize },

    #[error(transparent)]
    InvalidCapacity(#[from] InvalidCapacity),

    #[error("the module violated the protocol: {0}; open the feed again")]
    ProtocolViolation(#[from] ProtocolViolation),

    #[error(
        "a mapped feed cannot be used in a child of the process that mapped it; use Feed::reader()"
    )]
    Forked,

    #[error(transparent)]
    System(#[from] SystemError),
}

impl RecvError {
    pub(super) fn of_query(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ENOTTY | libc::EINVAL | libc::EBADF) => Self::NotAFeed,
            _ => SystemError::new("querying the feed", error).into(),
        }
    }

    fn kind(&self) -> ErrorKind {
        match self {
            Self::Empty => ErrorKind::WouldBlock,
            Self::TimedOut(_) => ErrorKind::TimedOut,
            Self::Closed => ErrorKind::UnexpectedEof,
            Self::Busy => ErrorKind::ResourceBusy,
            Self::NotAFeed => ErrorKind::InvalidInput,
            Self::ReadOnly => ErrorKind::PermissionDenied,
            Self::Rejected
            | Self::InvalidPacket { .. }
            | Self::InvalidCapacity(_)
            | Self::ProtocolViolation(_) => ErrorKind::InvalidData,
            Self::Forked => ErrorKind::Other,
            Self::System(error) => error.kind(),
        }
    }
}

/// Why the packet simulator was not started or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimulatorError {
    #[error("the packet simulator runs already; stop it, or wait until it has reached its count")]
    Running,

    #[error(
        "permission denied for the packet simulator: it needs CAP_SYS_NICE on the host; run as root, outside of a container"
    )]
    NotPermitted,

    #[error(
        "another endpoint has started the packet simulator; stop it there, or close that endpoint"
    )]
    StartedByAnother,

    #[error(
        "invalid simulation; give an interval of 10 µs to 10 s, up to 4096 bytes, and an online processor"
    )]
    OutOfRange,

    #[error("the descriptor is not that of the packet simulator; use Feed::simulator()")]
    NotASimulator,

    #[error(transparent)]
    System(#[from] SystemError),
}

impl SimulatorError {
    pub(super) fn of_start(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EBUSY) => Self::Running,
            Some(libc::EPERM) => Self::NotPermitted,
            Some(libc::EINVAL) => Self::OutOfRange,
            Some(libc::ENOTTY) => Self::NotASimulator,
            _ => SystemError::new("starting the packet simulator", error).into(),
        }
    }

    pub(super) fn of_stop(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EPERM) => Self::StartedByAnother,
            Some(libc::ENOTTY) => Self::NotASimulator,
            _ => SystemError::new("stopping the packet simulator", error).into(),
        }
    }

    fn kind(&self) -> ErrorKind {
        match self {
            Self::Running => ErrorKind::ResourceBusy,
            Self::NotPermitted | Self::StartedByAnother => ErrorKind::PermissionDenied,
            Self::OutOfRange | Self::NotASimulator => ErrorKind::InvalidInput,
            Self::System(error) => error.kind(),
        }
    }
}

into_io!(RecvError, SimulatorError);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_of_the_simulator_has_its_own_error() {
        let of = |errno| io::Error::from_raw_os_error(errno);
        for (errno, word) in [
            (libc::EBUSY, "runs already"),
            (libc::EPERM, "CAP_SYS_NICE"),
            (libc::EINVAL, "10 µs"),
            (libc::ENOTTY, "Feed::simulator"),
            (libc::EIO, "sluice doctor"),
        ] {
            let text = SimulatorError::of_start(of(errno)).to_string();
            assert!(text.contains(word), "{text}");
        }
        let stop = SimulatorError::of_stop(of(libc::EPERM));
        assert!(matches!(stop, SimulatorError::StartedByAnother));
    }

    #[test]
    fn errors_become_those_of_io_and_keep_their_text() {
        let error = io::Error::from(RecvError::Busy);
        assert_eq!(error.kind(), ErrorKind::ResourceBusy);
        assert_eq!(error.to_string(), RecvError::Busy.to_string());
        let error = io::Error::from(SimulatorError::NotPermitted);
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    }
}
