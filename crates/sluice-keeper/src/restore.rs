// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io;
use std::os::fd::BorrowedFd;

use sluice_abi::keeper;

use crate::calls;
use crate::error::CallError;

const RESTORING: &str = "restoring an entry of a durable map";

/// An entry to restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    pub key: &'a [u8],
    pub value: &'a [u8],
    /// The number of the change that created or last updated it.
    pub version: u64,
    /// The time at which the entry expires, in nanoseconds of CLOCK_BOOTTIME; 0: never.
    pub expires_ns: u64,
}

/// Restores all of them, some by each call.
pub(crate) fn restore(
    fd: BorrowedFd<'_>,
    stream: u64,
    entries: &[Entry<'_>],
) -> Result<(), CallError> {
    restore_all(entries, |some| {
        let some: Vec<_> = some.iter().map(|entry| entry.to_abi()).collect();
        // SAFETY: the addresses are those of the keys and values of `entries`, which the kernel only reads.
        unsafe { calls::restore(fd, stream, &some) }
    })
}

fn restore_all<'a>(
    entries: &[Entry<'a>],
    mut call: impl FnMut(&[Entry<'a>]) -> io::Result<usize>,
) -> Result<(), CallError> {
    let mut rest = entries;
    while !rest.is_empty() {
        let some = &rest[..rest.len().min(keeper::RESTORE_MAX)];
        let called = match call(some) {
            // It would never end.
            Ok(0) => Err(io::ErrorKind::InvalidData.into()),
            other => other,
        };
        let count = called.map_err(|error| CallError::new(RESTORING, error))?;
        rest = &rest[count.min(some.len())..];
    }
    Ok(())
}

impl Entry<'_> {
    fn to_abi(self) -> keeper::Entry {
        keeper::Entry::new(self.key, self.value, self.version, self.expires_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRY: Entry<'static> = Entry {
        key: b"key",
        value: b"value",
        version: 1,
        expires_ns: 2,
    };

    #[test]
    fn an_entry_becomes_its_structure() {
        let abi = ENTRY.to_abi();
        assert_eq!((abi.key_length, abi.value_length), (3, 5));
        assert_eq!((abi.version, abi.expires_ns), (1, 2));
        assert_eq!(abi.key, ENTRY.key.as_ptr() as u64);
    }

    #[test]
    fn a_partial_call_is_continued() {
        let mut counts = Vec::new();
        restore_all(&[ENTRY; 600], |some| {
            counts.push(some.len());
            Ok(some.len().min(200))
        })
        .unwrap();
        assert_eq!(counts, [256, 256, 200]);
        restore_all(&[], |_| panic!("a call without entries")).unwrap();
    }

    #[test]
    fn a_failed_call_ends_it() {
        let mut left = 1;
        let failed = restore_all(&[ENTRY; 300], |some| match left {
            0 => Err(io::Error::from_raw_os_error(libc::EEXIST)),
            _ => {
                left -= 1;
                Ok(some.len())
            }
        });
        assert_eq!(failed.unwrap_err().errno(), libc::EEXIST);
        let none = restore_all(&[ENTRY], |_| Ok(0)).unwrap_err();
        assert_eq!(none.errno(), libc::EIO);
    }
}
