// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can go wrong with a ring, by what was asked for: each error says what failed, why, and what to do.

use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::time::Duration;

use sluice_ring::{Capacity, InvalidCapacity, ProtocolViolation};

/// Why a ring could not be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    #[error(transparent)]
    InvalidCapacity(#[from] InvalidCapacity),

    #[error("huge pages cannot be left unsealed; leave out one of the two")]
    UnsealedHugePages,

    #[error("cannot listen at {}: {source}; remove what is there if nobody uses it, or choose a path in a directory that you may write to", path.display())]
    Listen { path: PathBuf, source: io::Error },

    #[error("cannot connect to {}: {source}; start the side that listens first, and see that you may write to the socket", path.display())]
    Connect { path: PathBuf, source: io::Error },

    #[error(
        "the peer runs as user {uid}, who is not allowed; run both as one user, or allow that one"
    )]
    PeerNotAllowed { uid: u32 },

    #[error("the peer did not finish the handshake within {0:?}; see whether it hangs")]
    HandshakeTimeout(Duration),

    #[error("the peer closed the connection during the handshake; see what it says")]
    HandshakeAborted,

    #[error(
        "the peer does not speak this protocol: {0}; use one version of this library at both ends"
    )]
    ProtocolMismatch(&'static str),

    #[error("the peer speaks version {theirs} of the protocol, this side {ours}; use one version of this library at both ends", ours = sluice_abi::ring::VERSION)]
    Version { theirs: u32 },

    #[error("both ends want to be the {role}; one has to be the other side")]
    RoleConflict { role: &'static str },

    #[error("the peer's capacity is not valid: {0}")]
    PeerCapacity(InvalidCapacity),

    #[error(
        "the peer's ring has {capacity} bytes, and this side allows {max}; allow more, or send with less"
    )]
    CapacityTooLarge { capacity: Capacity, max: u64 },

    #[error("the peer's memory cannot be used: {0}; the peer has to be mended")]
    InvalidMemfd(String),

    #[error("the peer refuses this side: {0}")]
    Refused(String),

    #[error("{what} failed: {source}; {}", next_step(source))]
    System {
        what: &'static str,
        source: io::Error,
    },

    #[error(
        "there are not enough free huge pages of 2 MiB for a ring of {0} bytes; have root raise vm.nr_hugepages, or do without"
    )]
    NoHugePages(Capacity),

    #[error(
        "a ring of {0} bytes cannot be locked into memory: {1}; raise ulimit -l, or do without"
    )]
    NotLocked(Capacity, io::Error),
}

/// Why nothing was sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    #[error(
        "a record of {len} bytes is too long, the ring carries up to {max}; set up a larger one, or send the record in parts"
    )]
    RecordTooLong { len: usize, max: u32 },

    #[error("there is no room now; try again later, or use a call that waits")]
    Full,

    #[error("the consumer released nothing for {0:?}; wait longer, or see what keeps it")]
    TimedOut(Duration),

    #[error("the consumer has closed the ring; connect again if there is more to send")]
    Closed,

    #[error("the consumer died, or closed its socket without closing the ring; connect again")]
    PeerDied,

    #[error("the consumer violated the protocol: {0}; connect again")]
    ProtocolViolation(#[from] ProtocolViolation),

    #[error(
        "this ring belongs to the process that set it up, not to its children; set up another one"
    )]
    Forked,

    #[error("{what} failed: {source}; {}", next_step(source))]
    System {
        what: &'static str,
        source: io::Error,
    },
}

/// Why nothing was received.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecvError {
    #[error(
        "the next record has {len} bytes, and the buffer {room}; it is still there, give it more room"
    )]
    BufferTooSmall { len: u32, room: usize },

    #[error("there is no record now; try again later, or use a call that waits")]
    Empty,

    #[error("the producer sent nothing for {0:?}; wait longer, or see what keeps it")]
    TimedOut(Duration),

    #[error(
        "the producer died, or closed its socket without closing the ring; everything that it had sent was received"
    )]
    PeerDied,

    #[error("the producer violated the protocol: {0}; connect again")]
    ProtocolViolation(#[from] ProtocolViolation),

    #[error(
        "this ring belongs to the process that set it up, not to its children; set up another one"
    )]
    Forked,

    #[error("{what} failed: {source}; {}", next_step(source))]
    System {
        what: &'static str,
        source: io::Error,
    },
}

/// Why waiting ended with nothing, whatever was waited for.
#[derive(Debug)]
pub(super) enum WaitError {
    WouldBlock,
    TimedOut(Duration),
    PeerDied,
    ProtocolViolation(ProtocolViolation),
    Forked,
    System {
        what: &'static str,
        source: io::Error,
    },
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
            WaitError::System { what, source } => Self::System { what, source },
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
            WaitError::System { what, source } => Self::System { what, source },
        }
    }
}

impl SetupError {
    pub(super) fn system(what: &'static str) -> impl FnOnce(rustix::io::Errno) -> Self {
        move |errno| Self::System {
            what,
            source: errno.into(),
        }
    }

    /// Whether the peer is the reason: another one that connects may be accepted.
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
            | Self::System { .. }
            | Self::NoHugePages(_)
            | Self::NotLocked(..) => false,
        }
    }

    fn kind(&self) -> ErrorKind {
        match self {
            Self::InvalidCapacity(_) | Self::UnsealedHugePages => ErrorKind::InvalidInput,
            Self::Listen { source, .. }
            | Self::Connect { source, .. }
            | Self::System { source, .. }
            | Self::NotLocked(_, source) => source.kind(),
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
            Self::System { source, .. } => source.kind(),
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
            Self::System { source, .. } => source.kind(),
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
        Some(libc::EMFILE) => "close what is not needed, or raise ulimit -n",
        Some(libc::ENFILE) => "have root raise /proc/sys/fs/file-max",
        Some(libc::ENOMEM) => "raise memory.max of this cgroup, or end what uses it up",
        Some(libc::EAGAIN) => "raise ulimit -u, or pids.max of this cgroup",
        Some(libc::EPERM | libc::ENOSYS) => {
            "see whether a seccomp filter forbids it, or the kernel is older than Linux 6.1"
        }
        _ => "'sluice doctor' tells whether something is wrong with this system",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_call_says_what_to_do_next() {
        let of = |errno| SetupError::System {
            what: "mapping the ring",
            source: io::Error::from_raw_os_error(errno),
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
