// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::time::Duration;

use sluice_ring::{Capacity, InvalidCapacity};

use super::SystemError;
use crate::Error;
use crate::error::into_io;

/// Why a ring could not be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    #[error(transparent)]
    InvalidCapacity(#[from] InvalidCapacity),

    #[error("huge pages cannot be left unsealed; use one of the two options")]
    UnsealedHugePages,

    #[error("cannot listen at {}: {source}; choose a path in a writable directory", path.display())]
    Listen { path: PathBuf, source: io::Error },

    #[error("cannot connect to {}: {source}; start the listening side first, and check the mode of the socket", path.display())]
    Connect { path: PathBuf, source: io::Error },

    #[error(
        "the peer runs as user {uid}, which is not allowed; allow that user, or run both as one"
    )]
    PeerNotAllowed { uid: u32 },

    #[error("handshake timeout: the peer did not finish within {0:?}; check whether it hangs")]
    HandshakeTimeout(Duration),

    #[error("the peer closed the connection during the handshake; check its error message")]
    HandshakeAborted,

    #[error("protocol mismatch: {0}; use one version of this library on both sides")]
    ProtocolMismatch(&'static str),

    #[error("protocol version {theirs} of the peer, {ours} of this side; use one version of this library on both sides", ours = sluice_abi::ring::VERSION)]
    Version { theirs: u32 },

    #[error("both sides are the {role}; let one take the other role")]
    RoleConflict { role: &'static str },

    #[error("invalid capacity of the peer: {0}")]
    PeerCapacity(InvalidCapacity),

    #[error(
        "the peer's ring has {capacity} bytes, and this side allows {max}; change one of the two"
    )]
    CapacityTooLarge { capacity: Capacity, max: u64 },

    #[error("invalid memory of the peer: {0}; fix the peer")]
    InvalidMemfd(String),

    #[error(
        "the peer does not allow the user of this process; start it with this user allowed, as by --allow-user"
    )]
    NotAllowedByPeer,

    #[error("the peer rejected this side: {0}")]
    Refused(String),

    #[error(transparent)]
    System(#[from] SystemError),

    #[error(
        "not enough free huge pages for a ring of {0} bytes; raise vm.nr_hugepages, or use normal pages"
    )]
    NoHugePages(Capacity),

    #[error(
        "a ring of {capacity} bytes exceeds the {room} bytes that {}/memory.max leaves; use a smaller capacity, or raise memory.max",
        cgroup.display()
    )]
    MemoryLimit {
        capacity: Capacity,
        cgroup: PathBuf,
        room: u64,
    },

    #[error(
        "the ring has a {role} already, or did until now; wait for both sides to end, or use another name"
    )]
    RoleTaken { role: &'static str },

    #[error("the descriptor is not an endpoint of a ring; pass one that was opened for this ring")]
    NotAnEndpoint,

    #[error("the descriptor is that of the {role}; attach it as such")]
    WrongRole { role: &'static str },

    #[error(
        "the descriptor was used before; pass it on before its first use, or open the ring again"
    )]
    EndpointUsed,

    #[error("this side of the ring has ended, or its channel was destroyed; open the ring again")]
    Ended,

    #[error(
        "there is no memory node {node}, or it has no memory; choose another, see 'numactl -H'"
    )]
    NoSuchNode { node: u32 },

    #[error(transparent)]
    Open(Error),

    #[error("cannot lock a ring of {0} bytes in memory: {1}; raise ulimit -l, or do not lock it")]
    NotLocked(Capacity, io::Error),
}

impl SetupError {
    pub(in crate::ring) fn system(what: &'static str) -> impl FnOnce(rustix::io::Errno) -> Self {
        move |errno| Self::System(SystemError::new(what, errno))
    }

    /// Whether the peer caused the error, so that another peer may be accepted.
    pub fn is_peers_fault(&self) -> bool {
        match self {
            Self::PeerNotAllowed { .. }
            | Self::HandshakeTimeout(_)
            | Self::HandshakeAborted
            | Self::ProtocolMismatch(_)
            | Self::Version { .. }
            | Self::RoleConflict { .. }
            | Self::PeerCapacity(_)
            | Self::CapacityTooLarge { .. }
            | Self::InvalidMemfd(_)
            | Self::NotAllowedByPeer
            | Self::Refused(_) => true,
            Self::InvalidCapacity(_)
            | Self::UnsealedHugePages
            | Self::Listen { .. }
            | Self::Connect { .. }
            | Self::System(_)
            | Self::NoHugePages(_)
            | Self::MemoryLimit { .. }
            | Self::RoleTaken { .. }
            | Self::NotAnEndpoint
            | Self::WrongRole { .. }
            | Self::EndpointUsed
            | Self::Ended
            | Self::NoSuchNode { .. }
            | Self::Open(_)
            | Self::NotLocked(..) => false,
        }
    }

    fn kind(&self) -> ErrorKind {
        match self {
            Self::InvalidCapacity(_)
            | Self::UnsealedHugePages
            | Self::NotAnEndpoint
            | Self::WrongRole { .. }
            | Self::EndpointUsed
            | Self::NoSuchNode { .. } => ErrorKind::InvalidInput,
            Self::RoleTaken { .. } => ErrorKind::ResourceBusy,
            Self::Ended => ErrorKind::BrokenPipe,
            Self::Open(error) => error.kind(),
            Self::Listen { source, .. }
            | Self::Connect { source, .. }
            | Self::NotLocked(_, source) => source.kind(),
            Self::System(error) => error.kind(),
            Self::PeerNotAllowed { .. } => ErrorKind::PermissionDenied,
            Self::HandshakeTimeout(_) => ErrorKind::TimedOut,
            Self::HandshakeAborted => ErrorKind::ConnectionAborted,
            Self::Refused(_) => ErrorKind::ConnectionRefused,
            Self::NotAllowedByPeer => ErrorKind::PermissionDenied,
            Self::NoHugePages(_) | Self::MemoryLimit { .. } => ErrorKind::OutOfMemory,
            _ => ErrorKind::InvalidData,
        }
    }
}

into_io!(SetupError);
