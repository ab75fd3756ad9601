// SPDX-License-Identifier: MIT OR Apache-2.0
//! The errors of a ring, by operation. Each message is one line: what failed, the cause, what to do.

use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::time::Duration;

use sluice_ring::{Capacity, InvalidCapacity, ProtocolViolation};

const FORKED: &str =
    "a ring cannot be used in a child of the process that set it up; set up another one";

/// A system call that failed for a reason without an error of its own.
#[derive(Debug, thiserror::Error)]
#[error("{what} failed: {source}; {}", next_step(source))]
pub struct SystemError {
    what: &'static str,
    source: io::Error,
}

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

    #[error("the peer rejected this side: {0}")]
    Refused(String),

    #[error(transparent)]
    System(#[from] SystemError),

    #[error(
        "not enough free huge pages for a ring of {0} bytes; raise vm.nr_hugepages, or use normal pages"
    )]
    NoHugePages(Capacity),

    #[error("cannot lock a ring of {0} bytes in memory: {1}; raise ulimit -l, or do not lock it")]
    NotLocked(Capacity, io::Error),
}

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

    #[error("the consumer died, or closed its socket without closing the ring; connect again")]
    PeerDied,

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
        "the producer died, or closed its socket without closing the ring; all sent records were received"
    )]
    PeerDied,

    #[error("the producer violated the protocol: {0}; connect again")]
    ProtocolViolation(#[from] ProtocolViolation),

    #[error("{FORKED}")]
    Forked,

    #[error(transparent)]
    System(#[from] SystemError),
}

/// Why waiting for a record or for room failed.
#[derive(Debug)]
pub(super) enum WaitError {
    WouldBlock,
    TimedOut(Duration),
    PeerDied,
    ProtocolViolation(ProtocolViolation),
    Forked,
    System(SystemError),
}

impl From<ProtocolViolation> for WaitError {
    fn from(violation: ProtocolViolation) -> Self {
        Self::ProtocolViolation(violation)
    }
}

impl From<WaitError> for SendError {
    fn from(error: WaitError) -> Self {
        match error {
            WaitError::WouldBlock => Self::Full,
            WaitError::TimedOut(time) => Self::TimedOut(time),
            WaitError::PeerDied => Self::PeerDied,
            WaitError::ProtocolViolation(violation) => Self::ProtocolViolation(violation),
            WaitError::Forked => Self::Forked,
            WaitError::System(error) => Self::System(error),
        }
    }
}

impl From<WaitError> for RecvError {
    fn from(error: WaitError) -> Self {
        match error {
            WaitError::WouldBlock => Self::Empty,
            WaitError::TimedOut(time) => Self::TimedOut(time),
            WaitError::PeerDied => Self::PeerDied,
            WaitError::ProtocolViolation(violation) => Self::ProtocolViolation(violation),
            WaitError::Forked => Self::Forked,
            WaitError::System(error) => Self::System(error),
        }
    }
}

impl SystemError {
    pub(super) fn new(what: &'static str, source: impl Into<io::Error>) -> Self {
        Self {
            what,
            source: source.into(),
        }
    }

    pub(super) fn kind(&self) -> ErrorKind {
        self.source.kind()
    }
}

impl SetupError {
    pub(super) fn system(what: &'static str) -> impl FnOnce(rustix::io::Errno) -> Self {
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
            | Self::Refused(_) => true,
            Self::InvalidCapacity(_)
            | Self::UnsealedHugePages
            | Self::Listen { .. }
            | Self::Connect { .. }
            | Self::System(_)
            | Self::NoHugePages(_)
            | Self::NotLocked(..) => false,
        }
    }

    fn kind(&self) -> ErrorKind {
        match self {
            Self::InvalidCapacity(_) | Self::UnsealedHugePages => ErrorKind::InvalidInput,
            Self::Listen { source, .. }
            | Self::Connect { source, .. }
            | Self::NotLocked(_, source) => source.kind(),
            Self::System(error) => error.kind(),
            Self::PeerNotAllowed { .. } => ErrorKind::PermissionDenied,
            Self::HandshakeTimeout(_) => ErrorKind::TimedOut,
            Self::HandshakeAborted => ErrorKind::ConnectionAborted,
            Self::Refused(_) => ErrorKind::ConnectionRefused,
            Self::NoHugePages(_) => ErrorKind::OutOfMemory,
            _ => ErrorKind::InvalidData,
        }
    }
}

impl SendError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::RecordTooLong { .. } => ErrorKind::InvalidInput,
            Self::Full => ErrorKind::WouldBlock,
            Self::TimedOut(_) => ErrorKind::TimedOut,
            Self::Closed | Self::PeerDied => ErrorKind::BrokenPipe,
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
            Self::PeerDied => ErrorKind::ConnectionReset,
            Self::ProtocolViolation(_) => ErrorKind::InvalidData,
            Self::Forked => ErrorKind::Other,
            Self::System(error) => error.kind(),
        }
    }
}

impl From<SetupError> for io::Error {
    fn from(error: SetupError) -> Self {
        Self::new(error.kind(), error)
    }
}

impl From<SendError> for io::Error {
    fn from(error: SendError) -> Self {
        Self::new(error.kind(), error)
    }
}

impl From<RecvError> for io::Error {
    fn from(error: RecvError) -> Self {
        Self::new(error.kind(), error)
    }
}

fn next_step(failure: &io::Error) -> &'static str {
    match failure.raw_os_error() {
        Some(libc::EMFILE) => "close unused descriptors, or raise ulimit -n",
        Some(libc::ENFILE) => "raise /proc/sys/fs/file-max as root",
        Some(libc::ENOMEM) => "raise memory.max of this cgroup, or free memory in it",
        Some(libc::EAGAIN) => "raise ulimit -u, or pids.max of this cgroup",
        Some(libc::EPERM | libc::ENOSYS) => {
            "check for a seccomp filter, or a kernel older than Linux 6.1"
        }
        _ => "run 'sluice doctor'",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_call_names_the_next_step() {
        let of = |errno| {
            let source = io::Error::from_raw_os_error(errno);
            SetupError::from(SystemError::new("mapping the ring", source))
        };
        for (errno, word) in [
            (libc::EMFILE, "ulimit -n"),
            (libc::ENFILE, "file-max"),
            (libc::ENOMEM, "memory.max"),
            (libc::EAGAIN, "pids.max"),
            (libc::EPERM, "seccomp"),
            (libc::EIO, "sluice doctor"),
        ] {
            let said = of(errno).to_string();
            assert!(said.starts_with("mapping the ring failed: "), "{said}");
            assert!(said.contains(word), "{said}");
        }
    }

    #[test]
    fn errors_become_those_of_io_and_keep_their_text() {
        let error = io::Error::from(RecvError::Empty);
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        assert_eq!(error.to_string(), RecvError::Empty.to_string());
        let error = io::Error::from(SendError::PeerDied);
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        let error = io::Error::from(SetupError::PeerNotAllowed { uid: 7 });
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    }
}
