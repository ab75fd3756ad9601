// SPDX-License-Identifier: MIT OR Apache-2.0
//! The errors of a keeper, by operation.

use std::io;

use rustix::io::Errno;

use super::BUFFER;
use crate::diagnosis::{Diagnose as _, Diagnosis, ONE_VERSION, diagnosed, system_hint};
use crate::error::Error;
use crate::ring::SystemError;

/// Why this process did not become the keeper.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// EPERM.
    #[error("only an administrator keeps durable maps")]
    NotPermitted,

    /// EBUSY.
    #[error("another process keeps the durable maps of this host")]
    Busy,

    /// /dev/sluice/ctl is not there, or the module has no durable maps (ENOTTY).
    #[error(transparent)]
    Open(#[from] Error),
}

impl OpenError {
    pub(super) fn new(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EPERM) => Self::NotPermitted,
            Some(libc::EBUSY) => Self::Busy,
            Some(libc::ENOTTY) => Self::Open(Error::ModuleTooOld {
                missing: "SLUICE_CTL_KEEP",
            }),
            _ => Self::Open(Error::io("opening the descriptor of the keeper", error)),
        }
    }

    fn diagnosis(&self) -> Diagnosis {
        let (errno, hint) = match self {
            Self::NotPermitted => (libc::EPERM, "run it as root, in the initial user namespace"),
            Self::Busy => (libc::EBUSY, "stop it first"),
            Self::Open(error) => return error.diagnose(),
        };
        Diagnosis::new(errno, hint)
    }
}

/// Why no message was read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// EAGAIN. Only of a nonblocking descriptor.
    #[error("there is no message")]
    Empty,

    /// EMSGSIZE.
    #[error("the next message exceeds the buffer of {room} bytes")]
    BufferTooSmall { room: usize },

    /// A message is incomplete, or contradicts itself.
    #[error("invalid message in {len} bytes")]
    InvalidMessage { len: usize },

    #[error(transparent)]
    System(#[from] SystemError),
}

impl ReadError {
    pub(super) fn new(errno: Errno, room: usize) -> Self {
        match errno {
            Errno::AGAIN => Self::Empty,
            Errno::MSGSIZE => Self::BufferTooSmall { room },
            errno => SystemError::new("reading the messages of durable maps", errno).into(),
        }
    }

    fn diagnosis(&self) -> Diagnosis {
        let (errno, hint) = match self {
            Self::Empty => (libc::EAGAIN, "wait until the descriptor is readable"),
            Self::BufferTooSmall { .. } => {
                return Diagnosis::new(libc::EMSGSIZE, format!("use one of {BUFFER} bytes"));
            }
            Self::InvalidMessage { .. } => (libc::EBADMSG, ONE_VERSION),
            Self::System(error) => return error.diagnose(),
        };
        Diagnosis::new(errno, hint)
    }
}

/// Why a call of the keeper failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// ENOENT. Whoever opened the map has given up, or the map is gone. That is no fault of the keeper: it forgets the stream.
    #[error("{what} failed: there is no such stream or cgroup any more")]
    NoStream { what: &'static str },

    /// EEXIST.
    #[error("{what} failed: there is a map of this name")]
    AlreadyExists { what: &'static str },

    /// EBUSY.
    #[error("{what} failed: some changes are not acknowledged")]
    NotAcknowledged { what: &'static str },

    /// ENOSPC or EDQUOT, of which [`errno`](Self::errno) is one: a limit of channels, or of the map.
    #[error("{what} failed")]
    LimitExceeded {
        what: &'static str,
        source: io::Error,
    },

    /// Any other errno, such as EINVAL or ENOMEM.
    #[error("{what} failed")]
    Other {
        what: &'static str,
        source: io::Error,
    },
}

impl CallError {
    pub(super) fn new(what: &'static str, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::ENOENT) => Self::NoStream { what },
            Some(libc::EEXIST) => Self::AlreadyExists { what },
            Some(libc::EBUSY) => Self::NotAcknowledged { what },
            Some(libc::ENOSPC | libc::EDQUOT) => Self::LimitExceeded { what, source },
            _ => Self::Other { what, source },
        }
    }

    /// The number of the error, with which an open of the map can [fail](super::Keeper::refuse).
    pub fn errno(&self) -> i32 {
        match self {
            Self::NoStream { .. } => libc::ENOENT,
            Self::AlreadyExists { .. } => libc::EEXIST,
            Self::NotAcknowledged { .. } => libc::EBUSY,
            Self::LimitExceeded { source, .. } | Self::Other { source, .. } => {
                source.raw_os_error().unwrap_or(libc::EIO)
            }
        }
    }

    /// Whether the stream has ended, which is no fault of the keeper.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::NoStream { .. })
    }

    fn diagnosis(&self) -> Diagnosis {
        let hint = match self {
            Self::NoStream { .. } => "forget the stream",
            Self::AlreadyExists { .. } => "unlink one of them",
            Self::NotAcknowledged { .. } => "store and acknowledge them first",
            Self::LimitExceeded { .. } => "raise the limit of channels, or the capacity of the map",
            Self::Other { source, .. } => system_hint(source),
        };
        Diagnosis::new(self.errno(), hint)
    }
}

diagnosed!(OpenError, ReadError, CallError);

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    fn of(errno: i32) -> io::Error {
        io::Error::from_raw_os_error(errno)
    }

    #[test]
    fn each_failure_has_its_own_error() {
        for (errno, word) in [
            (libc::EPERM, "root"),
            (libc::EBUSY, "another process"),
            (libc::ENOTTY, "module is too old"),
            (libc::ENOMEM, "memory.max"),
        ] {
            let text = crate::explain(&OpenError::new(of(errno)));
            assert!(text.contains(word), "{text}");
        }
        for (errno, word) in [
            (Errno::AGAIN, "no message"),
            (
                Errno::MSGSIZE,
                "buffer of 7 bytes; use one of 1056768 bytes",
            ),
            (Errno::IO, "sluice doctor"),
        ] {
            let text = crate::explain(&ReadError::new(errno, 7));
            assert!(text.contains(word), "{text}");
        }
        for (errno, word) in [
            (libc::ENOENT, "forget the stream"),
            (libc::EEXIST, "of this name"),
            (libc::EBUSY, "not acknowledged"),
            (libc::ENOSPC, "limit"),
            (libc::EDQUOT, "limit"),
            (libc::EINVAL, "sluice doctor"),
        ] {
            let error = CallError::new("acknowledging", of(errno));
            assert_eq!(error.errno(), errno);
            assert_eq!(error.is_gone(), errno == libc::ENOENT);
            let text = crate::explain(&error);
            assert!(text.starts_with("acknowledging failed: "), "{text}");
            assert!(text.contains(word), "{text}");
        }
    }

    #[test]
    fn errors_become_those_of_io_and_keep_their_text() {
        let error = io::Error::from(OpenError::Busy);
        assert_eq!(error.kind(), ErrorKind::ResourceBusy);
        assert_eq!(error.to_string(), OpenError::Busy.to_string());
        let error = io::Error::from(ReadError::Empty);
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        let error = io::Error::from(CallError::new("ending", of(libc::ENOENT)));
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }
}
