// SPDX-License-Identifier: MIT OR Apache-2.0
//! The errors of a bus, by operation. Each message is one line: what failed, the cause, what to do.

use std::io::{self, ErrorKind};
use std::time::Duration;

use rustix::io::Errno;

use super::policy::{Mode, Policy};
use crate::error::{Error, into_io};
use crate::ring::SystemError;

const DESTROYED: &str = "the bus was destroyed; open it again if it is created again";

/// Why a bus was not opened, or a descriptor is no endpoint of one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    #[error(transparent)]
    Open(#[from] Error),

    #[error("the bus does not permit the policy '{policy}'; use one that 'sluice bus info' shows")]
    PolicyNotPermitted { policy: Policy },

    #[error(
        "permission denied for a monitor: it needs CAP_SYS_ADMIN on the host; run as root, outside of a container"
    )]
    MonitorNotPermitted,

    #[error(
        "the bus has as many subscribers as permitted; close one, or raise bus_max_subscribers before it is created"
    )]
    TooManySubscribers,

    #[error("a {mode} bus has no {option}; leave the option out, or use a bus of another mode")]
    NotInMode { mode: Mode, option: &'static str },

    #[error("the bus is not mappable; create it with Options::mappable, or do not map it")]
    NotMappable,

    #[error(
        "invalid options for the bus: they contradict each other, or are out of range; see sluice::bus::Options"
    )]
    InvalidOptions,

    #[error("invalid bus capacity {bytes}; give 1 byte to 256 MiB")]
    CapacityRange { bytes: u64 },

    #[error("the descriptor is not an endpoint of a bus; pass that of a sluice::bus type")]
    NotABus,

    #[error("the endpoint is not open for {purpose}; open the bus as a {role}")]
    WrongRole {
        purpose: &'static str,
        role: &'static str,
    },

    #[error(transparent)]
    System(#[from] SystemError),
}

impl OpenError {
    pub(super) fn of_query(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ENOTTY | libc::EINVAL | libc::EBADF) => Self::NotABus,
            _ => SystemError::new("querying the bus", error).into(),
        }
    }

    fn kind(&self) -> ErrorKind {
        match self {
            Self::Open(error) => error.kind(),
            Self::PolicyNotPermitted { .. } | Self::MonitorNotPermitted => {
                ErrorKind::PermissionDenied
            }
            Self::TooManySubscribers => ErrorKind::QuotaExceeded,
            Self::NotInMode { .. }
            | Self::NotMappable
            | Self::InvalidOptions
            | Self::CapacityRange { .. }
            | Self::NotABus
            | Self::WrongRole { .. } => ErrorKind::InvalidInput,
            Self::System(error) => error.kind(),
        }
    }
}

/// Why a message was not sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    #[error("the bus is full; try again later, or use a blocking call")]
    Full,

    #[error(
        "timeout: the bus was full for {0:?}; use a longer timeout, or check its slowest subscriber"
    )]
    TimedOut(Duration),

    #[error(
        "a message of {len} bytes exceeds {max}, the limit of this bus; create a larger bus, or split the message"
    )]
    MessageTooLong { len: usize, max: u64 },

    /// It has closed its endpoint, was evicted, or never existed.
    #[error("no subscriber has the id {id}; list those of the bus, or wait for its next message")]
    UnknownSubscriber { id: u64 },

    /// Only of a multicast bus.
    #[error("the bus has no subscriber; start one, and send again")]
    NoSubscriber,

    #[error(
        "messages of this bus cannot be addressed, because it is unicast or mappable; use send()"
    )]
    NotAddressable,

    #[error("{DESTROYED}")]
    Destroyed,

    #[error(transparent)]
    System(#[from] SystemError),
}

impl SendError {
    pub(super) fn new(errno: Errno, target: u64) -> Self {
        match errno {
            Errno::AGAIN => Self::Full,
            Errno::NOENT => Self::UnknownSubscriber { id: target },
            Errno::NOTCONN => Self::NoSubscriber,
            Errno::OPNOTSUPP => Self::NotAddressable,
            Errno::PIPE => Self::Destroyed,
            errno => SystemError::new("sending a message", errno).into(),
        }
    }

    fn kind(&self) -> ErrorKind {
        match self {
            Self::Full => ErrorKind::WouldBlock,
            Self::TimedOut(_) => ErrorKind::TimedOut,
            Self::MessageTooLong { .. } => ErrorKind::InvalidInput,
            Self::UnknownSubscriber { .. } => ErrorKind::NotFound,
            Self::NoSubscriber => ErrorKind::NotConnected,
            Self::NotAddressable => ErrorKind::Unsupported,
            Self::Destroyed => ErrorKind::BrokenPipe,
            Self::System(error) => error.kind(),
        }
    }
}

/// Why no message was received.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecvError {
    #[error("the bus has no message; try again later, or use a blocking call")]
    Empty,

    #[error(
        "timeout: the bus had no message for {0:?}; use a longer timeout, or check its senders"
    )]
    TimedOut(Duration),

    #[error(
        "the next message has {len} bytes, and the buffer {room}; call again with a larger buffer"
    )]
    BufferTooSmall { len: usize, room: usize },

    /// Its policy is [`Policy::Evict`].
    #[error(
        "this subscriber was evicted, because it did not keep up; open the bus again, or receive faster"
    )]
    Evicted,

    #[error("{DESTROYED}")]
    Destroyed,

    #[error("invalid message of {len} bytes; use the module and the library of one version")]
    InvalidMessage { len: usize },

    #[error(transparent)]
    System(#[from] SystemError),
}

impl RecvError {
    pub(super) fn new(errno: Errno) -> Self {
        match errno {
            Errno::AGAIN => Self::Empty,
            Errno::SHUTDOWN => Self::Evicted,
            Errno::PIPE => Self::Destroyed,
            errno => SystemError::new("receiving a message", errno).into(),
        }
    }

    fn kind(&self) -> ErrorKind {
        match self {
            Self::Empty => ErrorKind::WouldBlock,
            Self::TimedOut(_) => ErrorKind::TimedOut,
            Self::BufferTooSmall { .. } => ErrorKind::InvalidInput,
            Self::Evicted => ErrorKind::ConnectionAborted,
            Self::Destroyed => ErrorKind::BrokenPipe,
            Self::InvalidMessage { .. } => ErrorKind::InvalidData,
            Self::System(error) => error.kind(),
        }
    }
}

into_io!(OpenError, SendError, RecvError);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_has_its_own_error() {
        for (errno, word) in [
            (Errno::AGAIN, "full"),
            (Errno::NOENT, "id 7"),
            (Errno::NOTCONN, "no subscriber"),
            (Errno::OPNOTSUPP, "addressed"),
            (Errno::PIPE, "destroyed"),
            (Errno::IO, "sluice doctor"),
        ] {
            let text = SendError::new(errno, 7).to_string();
            assert!(text.contains(word), "{text}");
        }
        for (errno, word) in [
            (Errno::AGAIN, "no message"),
            (Errno::SHUTDOWN, "evicted"),
            (Errno::PIPE, "destroyed"),
            (Errno::IO, "sluice doctor"),
        ] {
            let text = RecvError::new(errno).to_string();
            assert!(text.contains(word), "{text}");
        }
    }

    #[test]
    fn errors_become_those_of_io_and_keep_their_text() {
        let error = io::Error::from(RecvError::Evicted);
        assert_eq!(error.kind(), ErrorKind::ConnectionAborted);
        assert_eq!(error.to_string(), RecvError::Evicted.to_string());
        let error = io::Error::from(SendError::NoSubscriber);
        assert_eq!(error.kind(), ErrorKind::NotConnected);
        let error = io::Error::from(OpenError::MonitorNotPermitted);
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    }
}
