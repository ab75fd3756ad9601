// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::diagnosis::{Diagnosis, diagnosed};
use crate::kind::Kind;

/// Why the store of durable maps takes no changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// ENOSPC.
    #[error("no space left")]
    Full,

    /// EIO.
    #[error("input/output error")]
    Failed,

    /// EROFS.
    #[error("read-only file system")]
    ReadOnly,

    /// An errno that this library does not know.
    #[error("errno {0}")]
    Other(i32),
}

impl StoreError {
    /// None if the errno is 0.
    pub(crate) fn from_errno(errno: i32) -> Option<Self> {
        match errno {
            0 => None,
            libc::ENOSPC => Some(Self::Full),
            libc::EIO => Some(Self::Failed),
            libc::EROFS => Some(Self::ReadOnly),
            other => Some(Self::Other(other)),
        }
    }

    /// That of a failed call on a channel, if it is a map. ENOSPC may also be a limit of channels.
    pub(crate) fn of_map(kind: Kind, errno: Option<i32>) -> Option<Self> {
        match errno {
            Some(errno @ (libc::EIO | libc::EROFS)) if kind == Kind::Map => Self::from_errno(errno),
            _ => None,
        }
    }

    fn diagnosis(&self) -> Diagnosis {
        let hint = match self {
            Self::Full => "free some on the file system of the store, see 'sluice store status'",
            Self::Failed => "see the log of sluiced and that of the kernel",
            Self::ReadOnly => {
                "mount the file system of the store writable, see 'sluice store status'"
            }
            Self::Other(_) => "see the log of sluiced",
        };
        Diagnosis::new(self.errno(), hint)
    }

    pub fn errno(self) -> i32 {
        match self {
            Self::Full => libc::ENOSPC,
            Self::Failed => libc::EIO,
            Self::ReadOnly => libc::EROFS,
            Self::Other(errno) => errno,
        }
    }
}

diagnosed!(StoreError);

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    #[test]
    fn an_error_is_that_of_its_number() {
        assert_eq!(StoreError::from_errno(0), None);
        for errno in [libc::ENOSPC, libc::EIO, libc::EROFS, libc::ENXIO] {
            let error = StoreError::from_errno(errno).unwrap();
            assert_eq!(error.errno(), errno);
            let is_other = matches!(error, StoreError::Other(_));
            assert_eq!(is_other, errno == libc::ENXIO);
        }
    }

    #[test]
    fn only_a_map_has_a_store() {
        let error = StoreError::of_map(Kind::Map, Some(libc::EROFS));
        assert_eq!(error, Some(StoreError::ReadOnly));
        assert_eq!(StoreError::of_map(Kind::Pipe, Some(libc::EIO)), None);
        assert_eq!(StoreError::of_map(Kind::Map, Some(libc::ENOSPC)), None);
        assert_eq!(StoreError::Full.kind(), ErrorKind::StorageFull);
    }
}
