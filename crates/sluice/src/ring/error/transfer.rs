// SPDX-License-Identifier: MIT OR Apache-2.0
//! The errors of sending and receiving.

use std::io::ErrorKind;
use std::time::Duration;

use sluice_ring::ProtocolViolation;

use super::SystemError;
use crate::error::into_io;

const FORKED: &str =
    "a ring cannot be used in a child of the process that set it up; set up another one";

/// Why nothing was sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    #[error(
        "a record of {len} bytes exceeds {max}, the limit of this ring; set up a larger ring, or split the record"
    )]
    RecordTooLong { len: usize, max: u32 },

    #[error("the ring is full; try again later, or use a blocking call")]
    Full,

    #[error(
        "timeout: the consumer released nothing for {0:?}; use a longer timeout, or check the consumer"
    )]
    TimedOut(Duration),

    #[error("the consumer has closed the ring; connect again to send more")]
    Closed,

    #[error("the consumer died, or left the ring without closing it; connect again")]
    PeerDied,

    #[error("the channel of the ring was destroyed; open it again to send more")]
    Destroyed,

    #[error("the consumer violated the protocol: {0}; connect again")]
    ProtocolViolation(#[from] ProtocolViolation),

    #[error("{FORKED}")]
    Forked,

    #[error(transparent)]
    System(#[from] SystemError),
}

/// Why nothing was received.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecvError {
    #[error(
        "the next record has {len} bytes, and the buffer {room}; call again with a larger buffer"
    )]
    BufferTooSmall { len: u32, room: usize },

    #[error("the ring is empty; try again later, or use a blocking call")]
    Empty,

    #[error(
        "timeout: the producer sent nothing for {0:?}; use a longer timeout, or check the producer"
    )]
    TimedOut(Duration),

    #[error(
        "the producer died, or left the ring without closing it; all sent records were received"
    )]
    PeerDied,

    #[error("the channel of the ring was destroyed; all sent records were received")]
    Destroyed,

    #[error("the producer violated the protocol: {0}; connect again")]
    ProtocolViolation(#[from] ProtocolViolation),

    #[error("{FORKED}")]
    Forked,

    #[error(transparent)]
    System(#[from] SystemError),
}

/// Why waiting for a record or for room failed.
#[derive(Debug)]
pub(in crate::ring) enum WaitError {
    WouldBlock,
    TimedOut(Duration),
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
                    WaitError::TimedOut(time) => Self::TimedOut(time),
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
    fn kind(&self) -> ErrorKind {
        match self {
            Self::RecordTooLong { .. } => ErrorKind::InvalidInput,
            Self::Full => ErrorKind::WouldBlock,
            Self::TimedOut(_) => ErrorKind::TimedOut,
            Self::Closed | Self::PeerDied | Self::Destroyed => ErrorKind::BrokenPipe,
            Self::ProtocolViolation(_) => ErrorKind::InvalidData,
            Self::Forked => ErrorKind::Other,
            Self::System(error) => error.kind(),
        }
    }
}

impl RecvError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::BufferTooSmall { .. } => ErrorKind::InvalidInput,
            Self::Empty => ErrorKind::WouldBlock,
            Self::TimedOut(_) => ErrorKind::TimedOut,
            Self::PeerDied | Self::Destroyed => ErrorKind::ConnectionReset,
            Self::ProtocolViolation(_) => ErrorKind::InvalidData,
            Self::Forked => ErrorKind::Other,
            Self::System(error) => error.kind(),
        }
    }
}

into_io!(SendError, RecvError);
