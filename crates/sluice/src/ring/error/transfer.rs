// SPDX-License-Identifier: MIT OR Apache-2.0
//! The errors of sending and receiving.

use sluice_ring::ProtocolViolation;

use crate::diagnosis::{AGAIN, Diagnose as _, Diagnosis, LARGER_BUFFER, REOPEN, diagnosed};
use crate::system_error::SystemError;
use crate::timeout::Timeout;

const FORKED: &str = "a ring cannot be used in a child of the process that set it up";

const SET_UP: &str = "close this side, and set up the ring again";
const ANOTHER: &str = "set up another one";

/// Why nothing was sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// A record of `len` bytes exceeds `max`, the limit of this ring.
    #[error("a record of {len} bytes exceeds {max}, the limit of this ring")]
    RecordTooLong { len: usize, max: u32 },

    /// The ring is full.
    #[error("the ring is full")]
    Full,

    /// Timeout: the consumer released nothing for this time, or has not come.
    #[error("{}", .0.message("the consumer released nothing"))]
    TimedOut(Timeout),

    /// The consumer has closed the ring.
    #[error("the consumer has closed the ring")]
    Closed,

    /// The consumer died, or left the ring without closing it.
    #[error("the consumer died, or left the ring without closing it")]
    PeerDied,

    /// The channel of the ring was destroyed.
    #[error("the channel of the ring was destroyed")]
    Destroyed,

    /// The consumer violated the protocol.
    #[error("the consumer violated the protocol")]
    ProtocolViolation(#[from] ProtocolViolation),

    /// This process is a child of the one that set up the ring.
    #[error("{FORKED}")]
    Forked,

    /// A system call failed.
    #[error(transparent)]
    System(#[from] SystemError),
}

/// Why nothing was received.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecvError {
    /// The next record has `len` bytes, and the buffer `room`.
    #[error("the next record has {len} bytes, and the buffer {room}")]
    BufferTooSmall { len: u32, room: usize },

    /// The ring is empty.
    #[error("the ring is empty")]
    Empty,

    /// Timeout: the producer sent nothing for this time, or has not come.
    #[error("{}", .0.message("the producer sent nothing"))]
    TimedOut(Timeout),

    /// The producer died, or left the ring without closing it, and all sent records were received.
    #[error(
        "the producer died, or left the ring without closing it, and all sent records were received"
    )]
    PeerDied,

    /// The channel of the ring was destroyed, and all sent records were received.
    #[error("the channel of the ring was destroyed, and all sent records were received")]
    Destroyed,

    /// The producer violated the protocol.
    #[error("the producer violated the protocol")]
    ProtocolViolation(#[from] ProtocolViolation),

    /// This process is a child of the one that set up the ring.
    #[error("{FORKED}")]
    Forked,

    /// A system call failed.
    #[error(transparent)]
    System(#[from] SystemError),
}

/// Why waiting for a record or for room failed.
#[derive(Debug)]
pub(in crate::ring) enum WaitError {
    WouldBlock,
    TimedOut(Timeout),
    PeerDied,
    Destroyed,
    ProtocolViolation(ProtocolViolation),
    Forked,
    System(SystemError),
}

impl From<ProtocolViolation> for WaitError {
    fn from(violation: ProtocolViolation) -> Self {
        Self::ProtocolViolation(violation)
    }
}

impl From<SystemError> for WaitError {
    fn from(error: SystemError) -> Self {
        Self::System(error)
    }
}

macro_rules! from_wait_error {
    ($error:ident, $would_block:ident) => {
        impl From<WaitError> for $error {
            fn from(error: WaitError) -> Self {
                match error {
                    WaitError::WouldBlock => Self::$would_block,
                    WaitError::TimedOut(timeout) => Self::TimedOut(timeout),
                    WaitError::PeerDied => Self::PeerDied,
                    WaitError::Destroyed => Self::Destroyed,
                    WaitError::ProtocolViolation(violation) => Self::ProtocolViolation(violation),
                    WaitError::Forked => Self::Forked,
                    WaitError::System(error) => Self::System(error),
                }
            }
        }
    };
}

from_wait_error!(SendError, Full);
from_wait_error!(RecvError, Empty);

impl SendError {
    fn diagnosis(&self) -> Diagnosis {
        let (errno, hint) = match self {
            Self::RecordTooLong { .. } => {
                (libc::EMSGSIZE, "set up a larger ring, or split the record")
            }
            Self::Full => (libc::EAGAIN, AGAIN),
            Self::TimedOut(timeout) => (
                libc::ETIMEDOUT,
                timeout.hint("use a longer timeout, or check the consumer"),
            ),
            Self::Closed => (libc::EPIPE, "set up the ring again to send more"),
            Self::PeerDied => (libc::ECONNRESET, SET_UP),
            Self::Destroyed => (libc::EPIPE, "open it again to send more"),
            Self::ProtocolViolation(_) => (libc::EPROTO, SET_UP),
            Self::Forked => (libc::ENXIO, ANOTHER),
            Self::System(error) => return error.diagnose(),
        };
        Diagnosis::new(errno, hint)
    }
}

impl RecvError {
    fn diagnosis(&self) -> Diagnosis {
        let (errno, hint) = match self {
            Self::BufferTooSmall { .. } => (libc::EMSGSIZE, LARGER_BUFFER),
            Self::Empty => (libc::EAGAIN, AGAIN),
            Self::TimedOut(timeout) => (
                libc::ETIMEDOUT,
                timeout.hint("use a longer timeout, or check the producer"),
            ),
            Self::PeerDied => (libc::ECONNRESET, SET_UP),
            Self::Destroyed => (libc::EPIPE, REOPEN),
            Self::ProtocolViolation(_) => (libc::EPROTO, SET_UP),
            Self::Forked => (libc::ENXIO, ANOTHER),
            Self::System(error) => return error.diagnose(),
        };
        Diagnosis::new(errno, hint)
    }
}

diagnosed!(SendError, RecvError);
