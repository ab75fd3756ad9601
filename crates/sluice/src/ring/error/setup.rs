// SPDX-License-Identifier: MIT OR Apache-2.0

use std::borrow::Cow;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::time::Duration;

use sluice_ring::{Capacity, InvalidCapacity};

use crate::Error;
use crate::diagnosis::{Diagnose as _, Diagnosis, capacity_hint, diagnosed};
use crate::system_error::SystemError;

const ONE_VERSION: &str = "use one version of this library on both sides";
const OTHER_ROLE: &str = "let one take the other role";

/// Why a ring could not be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The capacity is no power of two, or out of range.
    #[error(transparent)]
    InvalidCapacity(#[from] InvalidCapacity),

    /// Huge pages cannot be left unsealed.
    #[error("huge pages cannot be left unsealed")]
    UnsealedHugePages,

    /// The socket cannot be bound at `path`.
    #[error("cannot listen at {}", path.display())]
    Listen { path: PathBuf, source: io::Error },

    /// Nobody listens at `path`, or it cannot be reached.
    #[error("cannot connect to {}", path.display())]
    Connect { path: PathBuf, source: io::Error },

    /// The peer runs as user `uid`, which is not allowed.
    #[error("the peer runs as user {uid}, which is not allowed")]
    PeerNotAllowed { uid: u32 },

    /// Handshake timeout: the peer did not finish within this time.
    #[error("handshake timeout: the peer did not finish within {0:?}")]
    HandshakeTimeout(Duration),

    /// The peer closed the connection during the handshake.
    #[error("the peer closed the connection during the handshake")]
    HandshakeAborted,

    /// The peer speaks another protocol.
    #[error("protocol mismatch: {0}")]
    ProtocolMismatch(&'static str),

    /// Protocol version `theirs` of the peer, `ours` of this side.
    #[error("protocol version {theirs} of the peer, {ours} of this side", ours = sluice_abi::ring::VERSION)]
    Version { theirs: u32 },

    /// Both sides are the `role`.
    #[error("both sides are the {role}")]
    RoleConflict { role: &'static str },

    /// Invalid capacity of the peer.
    #[error("invalid capacity of the peer")]
    PeerCapacity(#[source] InvalidCapacity),

    /// The peer's ring has `capacity` bytes, and this side allows `max`.
    #[error("the peer's ring has {capacity} bytes, and this side allows {max}")]
    CapacityTooLarge { capacity: Capacity, max: u64 },

    /// The memory of the peer is not that of a ring.
    #[error("invalid memory of the peer: {0}")]
    InvalidMemfd(String),

    /// The peer does not allow the user of this process.
    #[error("the peer does not allow the user of this process")]
    NotAllowedByPeer,

    /// The errno is that of the reply of the peer, or ECONNREFUSED if the protocol has no reply with its number.
    #[error("the peer rejected this side: {}", reason(*.0))]
    Refused(i32),

    /// A system call failed.
    #[error(transparent)]
    System(#[from] SystemError),

    /// There are not enough free huge pages for a ring of so many bytes.
    #[error("not enough free huge pages for a ring of {0} bytes")]
    NoHugePages(Capacity),

    /// A ring of `capacity` bytes exceeds the `room` bytes that the limit of the memory cgroup leaves.
    #[error(
        "a ring of {capacity} bytes exceeds the {room} bytes that {}/memory.max leaves",
        cgroup.display()
    )]
    MemoryLimit {
        capacity: Capacity,
        cgroup: PathBuf,
        room: u64,
    },

    /// The ring has a `role` already, or did until now.
    #[error("the ring has a {role} already, or did until now")]
    RoleTaken { role: &'static str },

    /// The descriptor is not an endpoint of a ring.
    #[error("the descriptor is not an endpoint of a ring")]
    NotAnEndpoint,

    /// The descriptor is that of the `role`.
    #[error("the descriptor is that of the {role}")]
    WrongRole { role: &'static str },

    /// The descriptor was used before.
    #[error("the descriptor was used before")]
    EndpointUsed,

    /// This side of the ring has ended, or its channel was destroyed.
    #[error("this side of the ring has ended, or its channel was destroyed")]
    Ended,

    /// There is no memory node `node`, or it has no memory.
    #[error("there is no memory node {node}, or it has no memory")]
    NoSuchNode { node: u32 },

    /// The channel was not opened.
    #[error(transparent)]
    Open(Error),

    /// A ring of so many bytes cannot be locked in memory.
    #[error("cannot lock a ring of {0} bytes in memory")]
    NotLocked(Capacity, #[source] io::Error),
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

    fn diagnosis(&self) -> Diagnosis {
        let (errno, hint) = match self {
            Self::InvalidCapacity(error) => {
                return Diagnosis::new(libc::EINVAL, capacity_hint(error));
            }
            Self::PeerCapacity(error) => return of_peer(libc::ERANGE, capacity_hint(error)),
            Self::Version { .. } => return of_peer(libc::EPROTONOSUPPORT, ONE_VERSION),
            Self::RoleConflict { .. } => return of_peer(libc::EALREADY, OTHER_ROLE),
            Self::CapacityTooLarge { .. } => {
                return of_peer(libc::ERANGE, "change one of the two");
            }
            Self::InvalidMemfd(_) => return of_peer(libc::EACCES, "fix the peer"),
            Self::Refused(errno) => {
                let refused = Diagnosis::new(*errno, refusal_hint(*errno));
                return refused.of_kind(ErrorKind::ConnectionRefused);
            }
            Self::Open(error) => return error.diagnose(),
            Self::System(error) => return error.diagnose(),
            Self::Listen { source, .. } => return Diagnosis::of_io(source, listen_hint(source)),
            Self::Connect { source, .. } => return Diagnosis::of_io(source, connect_hint(source)),
            Self::NotLocked(_, source) => {
                return Diagnosis::of_io(source, "raise ulimit -l, or do not lock it");
            }
            Self::UnsealedHugePages => (libc::EINVAL, "use one of the two options"),
            Self::PeerNotAllowed { .. } => (libc::EPERM, "allow that user, or run both as one"),
            Self::HandshakeTimeout(_) => (libc::ETIMEDOUT, "check whether it hangs"),
            Self::HandshakeAborted => (libc::ECONNABORTED, "check its error message"),
            Self::ProtocolMismatch(_) => (libc::EPROTO, ONE_VERSION),
            Self::NotAllowedByPeer => (
                libc::EPERM,
                "start it with this user allowed, as by --allow-user",
            ),
            Self::NoHugePages(_) => (libc::ENOMEM, "raise vm.nr_hugepages, or use normal pages"),
            Self::MemoryLimit { .. } => {
                (libc::ENOMEM, "use a smaller capacity, or raise memory.max")
            }
            Self::RoleTaken { .. } => (
                libc::EBUSY,
                "wait for both sides to end, or use another name",
            ),
            Self::NotAnEndpoint => (libc::ENOTTY, "pass one that was opened for this ring"),
            Self::WrongRole { .. } => (libc::EINVAL, "attach it as such"),
            Self::EndpointUsed => (
                libc::EINVAL,
                "pass it on before its first use, or open the ring again",
            ),
            Self::Ended => (libc::EPIPE, "open the ring again"),
            Self::NoSuchNode { .. } => (libc::EINVAL, "choose another, see 'numactl -H'"),
        };
        Diagnosis::new(errno, hint)
    }
}

/// The errno that this side sends the peer for it.
fn of_peer(errno: i32, hint: impl Into<Cow<'static, str>>) -> Diagnosis {
    Diagnosis::new(errno, hint).of_kind(ErrorKind::InvalidData)
}

/// What a peer means by the errno of its reply.
fn reason(errno: i32) -> &'static str {
    match errno {
        libc::EPROTONOSUPPORT => "other protocol version",
        libc::EALREADY => "both sides have the same role",
        libc::EACCES => "invalid memory of this side",
        libc::EPROTO => "protocol mismatch",
        libc::ERANGE => "capacity not allowed",
        libc::ETIMEDOUT => "its time for the handshake was over, perhaps because it was stopped",
        _ => "its setup failed",
    }
}

fn refusal_hint(errno: i32) -> &'static str {
    match errno {
        libc::EPROTONOSUPPORT | libc::EPROTO => ONE_VERSION,
        libc::EALREADY => OTHER_ROLE,
        libc::ERANGE => "change the capacity, or what the peer allows",
        libc::ETIMEDOUT => "try again",
        _ => "check its error message",
    }
}

/// What prevents a listener at a path.
fn listen_hint(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EADDRINUSE) => {
            "choose a path that is not in use, or end the process that listens there"
        }
        Some(libc::EEXIST | libc::ENOTSOCK) => "choose a path that is not in use",
        Some(libc::ENAMETOOLONG) | None => "choose a path of 1 to 107 bytes",
        Some(libc::ENOENT | libc::ENOTDIR) => "create its directory first",
        _ => "choose a path in a writable directory",
    }
}

fn connect_hint(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => "check the mode of the socket and of its directories",
        Some(libc::ENAMETOOLONG | libc::EINVAL) | None => "choose a path of 1 to 107 bytes",
        _ => "start the listening side first",
    }
}

diagnosed!(SetupError);
