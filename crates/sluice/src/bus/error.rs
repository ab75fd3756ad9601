// SPDX-License-Identifier: MIT OR Apache-2.0
//! The errors of a bus, by operation.

use std::io;
use std::time::Duration;

use rustix::io::Errno;

use super::policy::{Mode, Policy};
use crate::diagnosis::{
    AGAIN, Diagnose as _, Diagnosis, LARGER_BUFFER, ONE_VERSION, REOPEN, diagnosed,
};
use crate::error::Error;
use crate::system_error::SystemError;
use crate::timeout::Timeout;
use crate::wait::Failure;

/// Why a bus was not opened, or a descriptor is no endpoint of one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The channel was not opened.
    #[error(transparent)]
    Open(#[from] Error),

    /// The bus does not permit the policy `policy`.
    #[error("the bus does not permit the policy '{policy}'")]
    PolicyNotPermitted { policy: Policy },

    /// Permission denied for a monitor: it needs CAP_SYS_ADMIN on the host.
    #[error("permission denied for a monitor: it needs CAP_SYS_ADMIN on the host")]
    MonitorNotPermitted,

    /// The bus has as many subscribers, or clients, as permitted.
    #[error("the bus has as many subscribers, or clients, as permitted")]
    TooManySubscribers,

    /// A `mode` bus has no `option`.
    #[error("a {mode} bus has no {option}")]
    NotInMode { mode: Mode, option: &'static str },

    /// The bus is not mappable.
    #[error("the bus is not mappable")]
    NotMappable,

    /// A server that loses requests without a notice.
    #[error("a server cannot have the policy 'drop'")]
    DroppingServer,

    /// Invalid options for the bus: they contradict each other, or are out of range.
    #[error("invalid options for the bus: they contradict each other, or are out of range")]
    InvalidOptions,

    /// Invalid bus capacity `bytes`.
    #[error("invalid bus capacity {bytes}")]
    CapacityRange { bytes: u64 },

    /// The descriptor is not an endpoint of a bus.
    #[error("the descriptor is not an endpoint of a bus")]
    NotABus,

    /// The endpoint is not open for `purpose`.
    #[error("the endpoint is not open for {purpose}")]
    WrongRole {
        purpose: &'static str,
        role: &'static str,
    },

    /// A system call failed.
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

    fn diagnosis(&self) -> Diagnosis {
        let (errno, hint) = match self {
            Self::Open(error) => return error.diagnose(),
            Self::System(error) => return error.diagnose(),
            Self::PolicyNotPermitted { .. } => {
                (libc::EPERM, "use one that 'sluice bus info' shows")
            }
            Self::MonitorNotPermitted => (libc::EPERM, "run it as root, outside of a container"),
            Self::TooManySubscribers => (
                libc::EUSERS,
                "close one, or raise bus_max_subscribers before the bus is created",
            ),
            Self::NotInMode {
                option: "requests", ..
            } => (libc::EINVAL, "use a multicast bus"),
            Self::NotInMode { .. } => (
                libc::EINVAL,
                "leave the option out, or use a bus of another mode",
            ),
            Self::DroppingServer => (libc::EINVAL, "use block or evict"),
            Self::NotMappable => (libc::EINVAL, "create it mappable, or do not map it"),
            Self::InvalidOptions => (libc::EINVAL, "leave out those that the bus does not need"),
            Self::CapacityRange { .. } => (libc::EINVAL, "give 1 byte to 256 MiB"),
            Self::NotABus => (libc::ENOTTY, "pass one of an open bus"),
            Self::WrongRole { role, .. } => {
                return Diagnosis::new(libc::EBADF, format!("open the bus as a {role}"));
            }
        };
        Diagnosis::new(errno, hint)
    }
}

/// Why a message was not sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The bus is full.
    #[error("the bus is full")]
    Full,

    /// Timeout: the bus was full for this time.
    #[error("timeout: the bus was full for {0:?}")]
    TimedOut(Duration),

    /// A message of `len` bytes exceeds `max`, the limit of this bus.
    #[error("a message of {len} bytes exceeds {max}, the limit of this bus")]
    MessageTooLong { len: usize, max: u64 },

    /// It has closed its endpoint, was evicted, or never existed.
    #[error("no subscriber has the id {id}")]
    UnknownSubscriber { id: u64 },

    /// Only of a multicast bus.
    #[error("the bus has no subscriber")]
    NoSubscriber,

    /// Messages of this bus cannot be addressed, because it is unicast or mappable.
    #[error("messages of this bus cannot be addressed, because it is unicast or mappable")]
    NotAddressable,

    /// The bus was destroyed.
    #[error("the bus was destroyed")]
    Destroyed,

    /// A system call failed.
    #[error(transparent)]
    System(#[from] SystemError),
}

impl SendError {
    pub(super) fn of(failure: Failure, target: u64) -> Self {
        match failure {
            Failure::TimedOut(limit) => Self::TimedOut(limit),
            Failure::Call(errno) => Self::new(errno, target),
        }
    }

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

    fn diagnosis(&self) -> Diagnosis {
        let (errno, hint) = match self {
            Self::Full => (libc::EAGAIN, AGAIN),
            Self::TimedOut(_) => (
                libc::ETIMEDOUT,
                "use a longer timeout, or check its slowest subscriber",
            ),
            Self::MessageTooLong { .. } => {
                (libc::EMSGSIZE, "create a larger bus, or split the message")
            }
            Self::UnknownSubscriber { .. } => (
                libc::ENOENT,
                "list those of the bus, or wait for its next message",
            ),
            Self::NoSubscriber => (
                libc::ENOTCONN,
                "start one in the same cgroup, and send again",
            ),
            Self::NotAddressable => (libc::EOPNOTSUPP, "send it to no subscriber in particular"),
            Self::Destroyed => (libc::EPIPE, REOPEN),
            Self::System(error) => return error.diagnose(),
        };
        Diagnosis::new(errno, hint)
    }
}

/// Why no message was received.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecvError {
    /// The bus has no message.
    #[error("the bus has no message")]
    Empty,

    /// Timeout: the bus had no message for this time, or no sender.
    #[error("{}", .0.message("the bus had no message"))]
    TimedOut(Timeout),

    /// The next message has `len` bytes, and the buffer `room`.
    #[error("the next message has {len} bytes, and the buffer {room}")]
    BufferTooSmall { len: usize, room: usize },

    /// Only of the endpoint of a client. See the section on notices in the ABI of buses.
    #[error("a server has ended, or this client has lost messages")]
    Notice,

    /// Its policy is [`Policy::Evict`].
    #[error("this subscriber was evicted, because it did not keep up")]
    Evicted,

    /// The bus was destroyed.
    #[error("the bus was destroyed")]
    Destroyed,

    /// Invalid message of `len` bytes.
    #[error("invalid message of {len} bytes")]
    InvalidMessage { len: usize },

    /// A system call failed.
    #[error(transparent)]
    System(#[from] SystemError),
}

impl RecvError {
    pub(super) fn new(errno: Errno) -> Self {
        match errno {
            Errno::AGAIN => Self::Empty,
            Errno::NOLINK => Self::Notice,
            Errno::SHUTDOWN => Self::Evicted,
            Errno::PIPE => Self::Destroyed,
            errno => SystemError::new("receiving a message", errno).into(),
        }
    }

    fn diagnosis(&self) -> Diagnosis {
        let (errno, hint) = match self {
            Self::Empty => (libc::EAGAIN, AGAIN),
            Self::TimedOut(timeout) => (
                libc::ETIMEDOUT,
                timeout.hint("use a longer timeout, or check its senders"),
            ),
            Self::BufferTooSmall { .. } => (libc::EMSGSIZE, LARGER_BUFFER),
            Self::Notice => (
                libc::ENOLINK,
                "compare subscribers() and info() with the open requests",
            ),
            Self::Evicted => (libc::ESHUTDOWN, "open the bus again, or receive faster"),
            Self::Destroyed => (libc::EPIPE, REOPEN),
            Self::InvalidMessage { .. } => (libc::EBADMSG, ONE_VERSION),
            Self::System(error) => return error.diagnose(),
        };
        Diagnosis::new(errno, hint)
    }
}

diagnosed!(OpenError, SendError, RecvError);

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

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
            let text = crate::explain(&SendError::new(errno, 7));
            assert!(text.contains(word), "{text}");
        }
        for (errno, word) in [
            (Errno::AGAIN, "no message"),
            (Errno::NOLINK, "has ended"),
            (Errno::SHUTDOWN, "evicted"),
            (Errno::PIPE, "destroyed"),
            (Errno::IO, "sluice doctor"),
        ] {
            let text = crate::explain(&RecvError::new(errno));
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
