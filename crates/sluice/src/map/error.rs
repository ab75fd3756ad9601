// SPDX-License-Identifier: MIT OR Apache-2.0
//! The errors of a map, by operation.

use std::io::{self, ErrorKind};
use std::time::Duration;

use rustix::io::Errno;

use super::{KEY_MAX, VALUE_MAX};
use crate::diagnosis::{
    AGAIN, Diagnose as _, Diagnosis, LARGER_BUFFER, ONE_VERSION, REOPEN, diagnosed,
};
use crate::error::Error;
use crate::store_error::StoreError;
use crate::system_error::SystemError;

const REFUSED: &str = "refused, nothing is changed";
const REMOVED: &str = "the durable map was unlinked or detached, or its cgroup removed";
const DESTROYED: &str = "the map was destroyed";

const KEYS: &str = "use 1 to 4096 bytes";
const FOR_READING: &str = "open it for reading";

/// Why a map was not opened, or a descriptor is no endpoint of one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The channel was not opened.
    #[error(transparent)]
    Open(#[from] Error),

    /// Invalid options for the map: the capacity is too large, or too small for its events, a time is too long, or the table is invalid.
    #[error("invalid options for the map: capacity, events, a time, or the table")]
    InvalidOptions,

    /// Of a durable open: EEXIST, although the open is not exclusive. A volatile map does not become durable.
    #[error("the map '{name}' exists, and is not durable")]
    NotDurable { name: String },

    /// The map has no table that can be mapped: it was created without one.
    #[error("the map has no table that can be mapped")]
    NotMapped,

    /// Of a durable open: ENOSPC or EDQUOT.
    #[error("no space for the durable map: a quota of channels, or the store")]
    NoSpace,

    /// Of a durable open of a mapped map: EPROTONOSUPPORT.
    #[error("the daemon of durable maps does not store mapped ones")]
    StoreTooOld,

    /// Of an exclusive durable open: EINTR. Other opens continue after a signal; this one might then find the map that it has created.
    #[error("a signal interrupted the open, which may have created the map")]
    Interrupted,

    /// Of a nonblocking durable open: EAGAIN.
    #[error("the map is not loaded, and its store has to be asked")]
    WouldBlock,

    /// The descriptor is not an endpoint of a map.
    #[error("the descriptor is not an endpoint of a map")]
    NotAMap,

    /// A system call failed.
    #[error(transparent)]
    System(#[from] SystemError),
}

impl OpenError {
    pub(super) fn of_query(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ENOTTY | libc::EINVAL | libc::EBADF) => Self::NotAMap,
            _ => SystemError::new("querying the map", error).into(),
        }
    }

    fn diagnosis(&self) -> Diagnosis {
        let (errno, hint) = match self {
            Self::Open(error) => return error.diagnose(),
            Self::System(error) => return error.diagnose(),
            Self::InvalidOptions => (
                libc::EINVAL,
                "give a capacity of up to 64 GiB, fewer events, shorter times, or a table of up to 16 GiB",
            ),
            Self::NotDurable { .. } => (libc::EEXIST, "open it as it is, or remove it first"),
            Self::NotMapped => (libc::EEXIST, "create it with 'mapped', or read it as it is"),
            Self::NoSpace => (
                libc::EDQUOT,
                "see 'sluice store status', and the limits of the module",
            ),
            Self::StoreTooOld => (
                libc::EPROTONOSUPPORT,
                "use sluiced and the module of one version",
            ),
            Self::Interrupted => (libc::EINTR, "open it without 'exclusive'"),
            Self::WouldBlock => (libc::EAGAIN, "use a blocking open"),
            Self::NotAMap => (libc::ENOTTY, "pass one of an open map"),
        };
        Diagnosis::new(errno, hint)
    }
}

/// Why entries were not read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// Invalid key of `len` bytes.
    #[error("invalid key of {len} bytes")]
    InvalidKey { len: usize },

    /// The value has `len` bytes, and the buffer `room`.
    #[error("the value has {len} bytes, and the buffer {room}")]
    BufferTooSmall { len: usize, room: usize },

    /// The map is not open for reading.
    #[error("the map is not open for reading")]
    NotReadable,

    /// The map was destroyed.
    #[error("{DESTROYED}")]
    Destroyed,

    /// Invalid entry in `len` bytes.
    #[error("invalid entry in {len} bytes")]
    InvalidEntry { len: usize },

    /// A system call failed.
    #[error(transparent)]
    System(#[from] SystemError),
}

impl ReadError {
    pub(super) fn new(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EBADF) => Self::NotReadable,
            Some(libc::EPIPE) => Self::Destroyed,
            _ => SystemError::new("reading the map", error).into(),
        }
    }

    #[inline]
    pub(super) fn check_key(key: &[u8]) -> Result<(), Self> {
        match is_valid(key) {
            true => Ok(()),
            false => Err(Self::InvalidKey { len: key.len() }),
        }
    }

    fn diagnosis(&self) -> Diagnosis {
        let (errno, hint) = match self {
            Self::InvalidKey { .. } => (libc::EINVAL, KEYS),
            Self::BufferTooSmall { .. } => (libc::EMSGSIZE, LARGER_BUFFER),
            Self::NotReadable => return wrong_access(FOR_READING),
            Self::Destroyed => (libc::EPIPE, REOPEN),
            Self::InvalidEntry { .. } => (libc::EBADMSG, ONE_VERSION),
            Self::System(error) => return error.diagnose(),
        };
        Diagnosis::new(errno, hint)
    }
}

/// Why an entry was not set or deleted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// Invalid key of `len` bytes.
    #[error("invalid key of {len} bytes")]
    InvalidKey { len: usize },

    /// A value of `len` bytes exceeds `VALUE_MAX`, the limit.
    #[error("a value of {len} bytes exceeds {VALUE_MAX}, the limit")]
    ValueTooLong { len: usize },

    /// The required version is 0, and there is an entry.
    #[error("the entry exists")]
    AlreadyExists,

    /// The entry has version `found`, and `required` is required.
    #[error("the entry has version {found}, and {required} is required")]
    VersionMismatch { required: u64, found: u64 },

    /// A version is required, and there is no entry.
    #[error("there is no entry, and version {required} is required")]
    NotFound { required: u64 },

    /// Its bytes, or its entries.
    #[error("the map is full")]
    Full,

    /// Of a durable map: EAGAIN. Too many changes are not stored yet, or no daemon has stored any for the time of the deadline. Without
    /// [`nowait`](super::SetOptions::nowait) and [`Durability::refuse`](super::Durability::refuse) the change has waited for that time.
    #[error("{REFUSED}: too many changes are not stored yet")]
    Refused,

    /// Of a durable map: the daemon cannot store changes (ENOSPC, EIO, EROFS).
    #[error("{REFUSED}: the store of durable maps failed")]
    Store(#[source] StoreError),

    /// EIDRM. The endpoint can still get entries.
    #[error("{REFUSED}: {REMOVED}")]
    Removed,

    /// Of a durable map: ETIMEDOUT. The change is made, and all processes see it, but a crash of the host may lose it.
    /// [`Map::sync_to`](super::Map::sync_to) its number waits again. A repeated change would be another one.
    #[error("change {number} is made, but not known to be stored")]
    Unacknowledged { number: u64 },

    /// The map is not open for writing.
    #[error("the map is not open for writing")]
    NotWritable,

    /// The map was destroyed.
    #[error("{DESTROYED}")]
    Destroyed,

    /// A system call failed.
    #[error(transparent)]
    System(#[from] SystemError),
}

impl WriteError {
    /// `required` is the version that the entry should have, or 0. `found` is the version after the call: that which the entry has, or
    /// the number of a change that is made nevertheless.
    pub(super) fn new(error: io::Error, required: u64, found: u64) -> Self {
        match error.raw_os_error() {
            Some(libc::EEXIST) => Self::AlreadyExists,
            Some(libc::ESTALE) => Self::VersionMismatch { required, found },
            // What can end the wait for the store. The number of a change exceeds every earlier version.
            Some(libc::ETIMEDOUT | libc::EINTR | libc::EIDRM | libc::EPIPE)
                if found != required =>
            {
                Self::Unacknowledged { number: found }
            }
            Some(libc::EAGAIN) => Self::Refused,
            Some(libc::EIO) => Self::Store(StoreError::Failed),
            Some(libc::EROFS) => Self::Store(StoreError::ReadOnly),
            Some(libc::EIDRM) => Self::Removed,
            Some(libc::ENOENT) => Self::NotFound { required },
            Some(libc::ENOSPC) => Self::Full,
            Some(libc::EBADF) => Self::NotWritable,
            Some(libc::EPIPE) => Self::Destroyed,
            _ => SystemError::new("changing the map", error).into(),
        }
    }

    #[inline]
    pub(super) fn check_key(key: &[u8]) -> Result<(), Self> {
        match is_valid(key) {
            true => Ok(()),
            false => Err(Self::InvalidKey { len: key.len() }),
        }
    }

    pub(super) fn check_value(value: &[u8]) -> Result<(), Self> {
        match value.len() {
            0..=VALUE_MAX => Ok(()),
            len => Err(Self::ValueTooLong { len }),
        }
    }

    /// Whether the entry has not the required version, so that another attempt may succeed with that which it has.
    pub fn is_conflict(&self) -> bool {
        matches!(
            self,
            Self::AlreadyExists | Self::VersionMismatch { .. } | Self::NotFound { .. }
        )
    }

    fn diagnosis(&self) -> Diagnosis {
        let (errno, hint) = match self {
            Self::InvalidKey { .. } => (libc::EINVAL, KEYS),
            Self::ValueTooLong { .. } => (libc::EINVAL, "split it"),
            Self::AlreadyExists => (libc::EEXIST, "get its version, and require that one"),
            Self::VersionMismatch { .. } => (libc::ESTALE, "get it again"),
            Self::NotFound { .. } => (libc::ENOENT, "require version 0 to create one"),
            Self::Full => {
                let hint = "delete entries, or create a map with higher limits";
                return Diagnosis::new(libc::ENOSPC, hint).of_kind(ErrorKind::QuotaExceeded);
            }
            Self::Refused => (
                libc::EAGAIN,
                "try again later, and check whether sluiced runs",
            ),
            Self::Store(error) => return error.diagnose(),
            Self::Removed => (libc::EIDRM, "open it again"),
            Self::Unacknowledged { .. } => (
                libc::ETIMEDOUT,
                "check whether sluiced runs, and wait for the change by a sync",
            ),
            Self::NotWritable => return wrong_access("open it for writing"),
            Self::Destroyed => (libc::EPIPE, REOPEN),
            Self::System(error) => return error.diagnose(),
        };
        Diagnosis::new(errno, hint)
    }
}

/// Why the changes of a durable map are not known to be stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SyncError {
    /// ETIMEDOUT: the deadline of the map. The changes are made.
    #[error("the changes are made, but not known to be stored")]
    TimedOut,

    /// EAGAIN. Only of a nonblocking endpoint.
    #[error("the changes are not stored yet")]
    WouldBlock,

    /// EINVAL. The number is that of another map, or of an earlier one of the name.
    #[error("the map has no change {number} yet")]
    NoSuchChange { number: u64 },

    /// EOPNOTSUPP.
    #[error("the map is not durable")]
    NotDurable,

    /// EIDRM.
    #[error("{REMOVED}")]
    Removed,

    /// EPIPE.
    #[error("{DESTROYED}")]
    Destroyed,

    /// A system call failed.
    #[error(transparent)]
    System(#[from] SystemError),
}

impl SyncError {
    pub(super) fn new(error: io::Error, number: u64) -> Self {
        match error.raw_os_error() {
            Some(libc::ETIMEDOUT) => Self::TimedOut,
            Some(libc::EAGAIN) => Self::WouldBlock,
            Some(libc::EINVAL) => Self::NoSuchChange { number },
            Some(libc::EOPNOTSUPP) => Self::NotDurable,
            Some(libc::EIDRM) => Self::Removed,
            Some(libc::EPIPE) => Self::Destroyed,
            _ => SystemError::new("waiting for the store of the map", error).into(),
        }
    }

    fn diagnosis(&self) -> Diagnosis {
        let (errno, hint) = match self {
            Self::TimedOut => (libc::ETIMEDOUT, "check whether sluiced runs, and try again"),
            Self::WouldBlock => (libc::EAGAIN, "try again later"),
            Self::NoSuchChange { .. } => (
                libc::EINVAL,
                "give the number that a set or a delete returned",
            ),
            Self::NotDurable => (libc::EOPNOTSUPP, "create it as a durable one"),
            Self::Removed => (libc::EIDRM, "open it again"),
            Self::Destroyed => (libc::EPIPE, REOPEN),
            Self::System(error) => return error.diagnose(),
        };
        Diagnosis::new(errno, hint)
    }
}

/// Why no event was received.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// The map has no event.
    #[error("the map has no event")]
    Empty,

    /// Timeout: the map had no event for this time.
    #[error("timeout: the map had no event for {0:?}")]
    TimedOut(Duration),

    /// The sequence is that of another map, or of an earlier one of the name.
    #[error("the map has no change {sequence} yet")]
    NoSuchChange { sequence: u64 },

    /// An endpoint has one position in the sequence.
    #[error("this endpoint is watched already")]
    AlreadyWatched,

    /// The map is not open for reading.
    #[error("the map is not open for reading")]
    NotReadable,

    /// The map was destroyed.
    #[error("{DESTROYED}")]
    Destroyed,

    /// Invalid event in `len` bytes.
    #[error("invalid event in {len} bytes")]
    InvalidEvent { len: usize },

    /// A system call failed.
    #[error(transparent)]
    System(#[from] SystemError),
}

impl WatchError {
    pub(super) fn new(errno: Errno) -> Self {
        match errno {
            Errno::AGAIN => Self::Empty,
            Errno::BADF => Self::NotReadable,
            Errno::PIPE => Self::Destroyed,
            errno => SystemError::new("watching the map", errno).into(),
        }
    }

    fn diagnosis(&self) -> Diagnosis {
        let (errno, hint) = match self {
            Self::Empty => (libc::EAGAIN, AGAIN),
            Self::TimedOut(_) => (libc::ETIMEDOUT, "use a longer timeout"),
            Self::NoSuchChange { .. } => (libc::EINVAL, "watch from now on, then read its entries"),
            Self::AlreadyWatched => (libc::EBUSY, "close that watcher, or open the map again"),
            Self::NotReadable => return wrong_access(FOR_READING),
            Self::Destroyed => (libc::EPIPE, REOPEN),
            Self::InvalidEvent { .. } => (libc::EBADMSG, ONE_VERSION),
            Self::System(error) => return error.diagnose(),
        };
        Diagnosis::new(errno, hint)
    }
}

/// EBADF, as of any file.
fn wrong_access(hint: &'static str) -> Diagnosis {
    Diagnosis::new(libc::EBADF, hint).of_kind(ErrorKind::PermissionDenied)
}

fn is_valid(key: &[u8]) -> bool {
    (1..=KEY_MAX).contains(&key.len())
}

diagnosed!(OpenError, ReadError, WriteError, SyncError, WatchError);

#[cfg(test)]
mod tests {
    use super::*;

    fn of(errno: i32) -> io::Error {
        io::Error::from_raw_os_error(errno)
    }

    #[test]
    fn each_failure_has_its_own_error() {
        for (errno, word) in [
            (libc::EEXIST, "exists"),
            (libc::ENOENT, "no entry, and version 7"),
            (libc::ENOSPC, "full"),
            (libc::EAGAIN, "nothing is changed: too many changes"),
            (
                libc::EIO,
                "nothing is changed: the store of durable maps failed: input/output",
            ),
            (
                libc::EROFS,
                "nothing is changed: the store of durable maps failed: read-only",
            ),
            (
                libc::EIDRM,
                "nothing is changed: the durable map was unlinked",
            ),
            (libc::EBADF, "for writing"),
            (libc::EPIPE, "destroyed"),
            (libc::ENOMEM, "memory.max"),
            (libc::EFAULT, "sluice doctor"),
        ] {
            let text = crate::explain(&WriteError::new(of(errno), 7, 7));
            assert!(text.contains(word), "{text}");
        }
        let text = crate::explain(&WriteError::new(of(libc::ESTALE), 7, 9));
        assert!(text.contains("version 9, and 7 is required"), "{text}");
        for (errno, word) in [
            (libc::ETIMEDOUT, "made, but not known to be stored"),
            (libc::EAGAIN, "not stored yet"),
            (libc::EINVAL, "no change 7 yet"),
            (libc::EOPNOTSUPP, "not durable"),
            (libc::EIDRM, "unlinked"),
            (libc::EPIPE, "destroyed"),
            (libc::ENOTTY, "sluice doctor"),
        ] {
            let text = crate::explain(&SyncError::new(of(errno), 7));
            assert!(text.contains(word), "{text}");
        }
        for (errno, word) in [
            (libc::EBADF, "for reading"),
            (libc::EPIPE, "destroyed"),
            (libc::EIO, "sluice doctor"),
        ] {
            let text = crate::explain(&ReadError::new(of(errno)));
            assert!(text.contains(word), "{text}");
        }
        for (errno, word) in [
            (Errno::AGAIN, "no event"),
            (Errno::BADF, "for reading"),
            (Errno::PIPE, "destroyed"),
            (Errno::IO, "sluice doctor"),
        ] {
            let text = crate::explain(&WatchError::new(errno));
            assert!(text.contains(word), "{text}");
        }
    }

    #[test]
    fn only_an_unexpected_version_is_a_conflict() {
        for errno in [libc::EEXIST, libc::ESTALE, libc::ENOENT] {
            assert!(WriteError::new(of(errno), 7, 7).is_conflict());
        }
        for errno in [libc::ENOSPC, libc::EBADF, libc::EPIPE, libc::EIO] {
            assert!(!WriteError::new(of(errno), 7, 7).is_conflict());
        }
    }

    #[test]
    fn a_change_that_is_made_is_not_refused() {
        for errno in [libc::ETIMEDOUT, libc::EINTR, libc::EIDRM, libc::EPIPE] {
            for required in [0, 7] {
                let error = WriteError::new(of(errno), required, 9);
                assert!(
                    matches!(error, WriteError::Unacknowledged { number: 9 }),
                    "{error:?}"
                );
            }
        }
        let text = WriteError::Unacknowledged { number: 9 }.to_string();
        assert!(
            text.contains("change 9 is made, but not known to be stored"),
            "{text}"
        );
    }

    #[test]
    fn the_lengths_of_keys_and_values_are_limited() {
        for len in [1, KEY_MAX] {
            assert!(ReadError::check_key(&vec![0; len]).is_ok());
            assert!(WriteError::check_key(&vec![0; len]).is_ok());
        }
        for len in [0, KEY_MAX + 1] {
            let error = ReadError::check_key(&vec![0; len]).unwrap_err();
            let expected = format!("invalid key of {len} bytes; use 1 to 4096 bytes");
            assert_eq!(crate::explain(&error), expected);
            let error = WriteError::check_key(&vec![0; len]).unwrap_err();
            assert_eq!(crate::explain(&error), expected);
        }
        assert!(WriteError::check_value(&vec![0; VALUE_MAX]).is_ok());
        let error = WriteError::check_value(&vec![0; VALUE_MAX + 1]).unwrap_err();
        assert!(error.to_string().contains("1048577 bytes exceeds 1048576"));
    }

    #[test]
    fn errors_become_those_of_io_and_keep_their_text() {
        let error = io::Error::from(WriteError::Full);
        assert_eq!(error.kind(), ErrorKind::QuotaExceeded);
        assert_eq!(error.to_string(), WriteError::Full.to_string());
        for (error, kind) in [
            (WriteError::Refused, ErrorKind::WouldBlock),
            (WriteError::Store(StoreError::Full), ErrorKind::StorageFull),
            (
                WriteError::Unacknowledged { number: 7 },
                ErrorKind::TimedOut,
            ),
        ] {
            assert_eq!(io::Error::from(error).kind(), kind);
        }
        let error = io::Error::from(SyncError::NotDurable);
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let error = io::Error::from(ReadError::NotReadable);
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        let error = io::Error::from(WatchError::Empty);
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        let error = io::Error::from(OpenError::NotAMap);
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }
}
