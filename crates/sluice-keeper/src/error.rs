// SPDX-License-Identifier: MIT OR Apache-2.0
//! The errors of a keeper, by operation.

use std::io;

use crate::BUFFER;

/// Why this process did not become the keeper.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// EPERM.
    #[error(
        "no permission to store durable maps: run sluiced as root, in the initial user namespace"
    )]
    NotPermitted,

    /// EBUSY.
    #[error("another process keeps the durable maps of this host: stop it first")]
    Busy,

    /// The module is not loaded, /dev/sluice/ctl cannot be opened, or the module has no durable maps (ENOTTY).
    #[error("the module is not available for durable maps")]
    Module(#[from] sluice::Error),

    #[error("opening the descriptor of the keeper failed")]
    System(#[source] io::Error),
}

impl OpenError {
    pub(crate) fn new(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EPERM) => Self::NotPermitted,
            Some(libc::EBUSY) => Self::Busy,
            Some(libc::ENOTTY) => Self::Module(sluice::Error::ModuleTooOld {
                missing: "SLUICE_CTL_KEEP",
            }),
            _ => Self::System(error),
        }
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
    #[error("the next message exceeds the buffer of {room} bytes; {BUFFER} are enough")]
    BufferTooSmall { room: usize },

    /// A message is incomplete, or contradicts itself.
    #[error("invalid message in {len} bytes: use the module and sluiced of one version")]
    InvalidMessage { len: usize },

    #[error("{what} failed")]
    System {
        what: &'static str,
        source: io::Error,
    },
}

impl ReadError {
    pub(crate) fn new(error: io::Error, room: usize) -> Self {
        match error.raw_os_error() {
            Some(libc::EAGAIN) => Self::Empty,
            Some(libc::EMSGSIZE) => Self::BufferTooSmall { room },
            _ => Self::System {
                what: "reading the messages of durable maps",
                source: error,
            },
        }
    }
}

/// Why a call of the keeper failed.
#[derive(Debug, thiserror::Error)]
#[error("{what} failed")]
pub struct CallError {
    what: &'static str,
    source: io::Error,
}

impl CallError {
    pub(crate) fn new(what: &'static str, source: io::Error) -> Self {
        Self { what, source }
    }

    /// The errno, which the keeper can pass to [`refuse`](crate::Keeper::refuse). ENOENT from any call: the stream has ended, and the keeper
    /// forgets it.
    pub fn errno(&self) -> i32 {
        self.source.raw_os_error().unwrap_or(libc::EIO)
    }
}

#[cfg(test)]
mod tests {
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
            (libc::ENOMEM, "memory"),
        ] {
            let text = sluice::explain(&OpenError::new(of(errno)));
            assert!(text.contains(word), "{text}");
        }
        for (errno, word) in [
            (libc::EAGAIN, "no message"),
            (libc::EMSGSIZE, "7 bytes; 1056768"),
            (libc::EIO, "reading"),
        ] {
            let text = sluice::explain(&ReadError::new(of(errno), 7));
            assert!(text.contains(word), "{text}");
        }
    }

    #[test]
    fn a_call_without_a_number_failed_by_an_error_of_input_or_output() {
        let of = |source| CallError::new("acknowledging changes", source).errno();
        assert_eq!(of(io::Error::from_raw_os_error(libc::ENOENT)), libc::ENOENT);
        assert_eq!(of(io::ErrorKind::InvalidData.into()), libc::EIO);
    }
}
