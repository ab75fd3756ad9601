// SPDX-License-Identifier: MIT OR Apache-2.0
//! The errors of a feed.

use std::io;
use std::time::Duration;

use sluice_ring::{InvalidCapacity, ProtocolViolation};

use crate::diagnosis::{AGAIN, Diagnose as _, Diagnosis, ONE_VERSION, REOPEN, diagnosed};
use crate::system_error::SystemError;

/// Why a feed cannot be received, or no packet was received.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecvError {
    /// The feed has no packet.
    #[error("the feed has no packet")]
    Empty,

    /// Timeout: the feed had no packet for this time.
    #[error("timeout: the feed had no packet for {0:?}")]
    TimedOut(Duration),

    /// The publisher has destroyed the feed.
    #[error("the feed has ended, and all packets were received")]
    Closed,

    /// The module rejected this consumer, because it stored an invalid position.
    #[error("the module rejected this consumer, because it stored an invalid position")]
    Rejected,

    /// Another endpoint receives the feed, or this one in the other way.
    #[error("another endpoint receives the feed, or this one in the other way")]
    Busy,

    /// The descriptor is not an endpoint of a feed.
    #[error("the descriptor is not an endpoint of a feed")]
    NotAFeed,

    /// The endpoint is open for reading only.
    #[error("the endpoint is open for reading only")]
    ReadOnly,

    /// Invalid packet of `len` bytes.
    #[error("invalid packet of {len} bytes")]
    InvalidPacket { len: usize },

    /// The capacity is no power of two, or out of range.
    #[error(transparent)]
    InvalidCapacity(#[from] InvalidCapacity),

    /// The module violated the protocol.
    #[error("the module violated the protocol")]
    ProtocolViolation(#[from] ProtocolViolation),

    /// A mapped feed cannot be used in a child of the process that mapped it.
    #[error("a mapped feed cannot be used in a child of the process that mapped it")]
    Forked,

    /// A system call failed.
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

    fn diagnosis(&self) -> Diagnosis {
        let (errno, hint) = match self {
            Self::Empty => (libc::EAGAIN, AGAIN),
            Self::TimedOut(_) => (
                libc::ETIMEDOUT,
                "use a longer timeout, or check the publisher",
            ),
            Self::Closed => (libc::ENODATA, REOPEN),
            Self::Rejected | Self::ProtocolViolation(_) => (libc::EPROTO, "open the feed again"),
            Self::Busy => (libc::EBUSY, "close the other, or open another endpoint"),
            Self::NotAFeed => (libc::ENOTTY, "pass one of an open feed"),
            Self::ReadOnly => (
                libc::EACCES,
                "open it for reading and writing to map the feed",
            ),
            Self::InvalidPacket { .. } | Self::InvalidCapacity(_) => (libc::EBADMSG, ONE_VERSION),
            Self::Forked => (libc::ENXIO, "open another endpoint there"),
            Self::System(error) => return error.diagnose(),
        };
        Diagnosis::new(errno, hint)
    }
}

diagnosed!(RecvError);

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    #[test]
    fn errors_become_those_of_io_and_keep_their_text() {
        let error = io::Error::from(RecvError::Busy);
        assert_eq!(error.kind(), ErrorKind::ResourceBusy);
        assert_eq!(error.to_string(), RecvError::Busy.to_string());
    }
}
