// SPDX-License-Identifier: MIT OR Apache-2.0
//! What all errors of this library tell beside their messages.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::io::{self, ErrorKind};

use sluice_ring::{Capacity, InvalidCapacity};

// The hints that several kinds have.
pub(crate) const AGAIN: &str = "try again later, or use a blocking call";
pub(crate) const LARGER_BUFFER: &str = "call again with a larger buffer";
pub(crate) const ONE_VERSION: &str = "use the module and the library of one version";
pub(crate) const REOPEN: &str = "open it again if it is created again";

/// What an error of this library tells beside its message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Diagnosis {
    /// The kind that the standard library has for such an error.
    pub kind: ErrorKind,
    /// The errno that the kernel has returned, or would return for the same cause. None: there is no such errno.
    pub raw_os_error: Option<i32>,
    /// What to do about it: the rest of a sentence after the message, such as "start the reader first".
    pub hint: Cow<'static, str>,
}

impl Diagnosis {
    pub(crate) fn new(errno: i32, hint: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind: kind(errno),
            raw_os_error: Some(errno),
            hint: hint.into(),
        }
    }

    /// Where the number alone would be of another kind.
    pub(crate) fn of_kind(self, kind: ErrorKind) -> Self {
        Self { kind, ..self }
    }

    pub(crate) fn of_io(error: &io::Error, hint: impl Into<Cow<'static, str>>) -> Self {
        match error.raw_os_error() {
            Some(errno) => Self::new(errno, hint),
            None => Self {
                kind: error.kind(),
                raw_os_error: None,
                hint: hint.into(),
            },
        }
    }
}

/// An error of this library.
pub trait Diagnose: StdError + 'static {
    fn diagnose(&self) -> Diagnosis;
}

/// Gives errors, which have a private method `diagnosis`, the calls that all errors of this library have, and the conversion to the error
/// of the standard library of the same kind, which keeps their text.
macro_rules! diagnosed {
    ($($error:ty),*) => {$(
        impl $error {
            /// The kind that the standard library has for such an error.
            pub fn kind(&self) -> std::io::ErrorKind {
                self.diagnosis().kind
            }

            /// The errno that the kernel has returned, or would return for the same cause.
            pub fn raw_os_error(&self) -> Option<i32> {
                self.diagnosis().raw_os_error
            }

            /// What to do about it: the rest of a sentence after the message.
            pub fn hint(&self) -> std::borrow::Cow<'static, str> {
                self.diagnosis().hint
            }
        }

        impl crate::diagnosis::Diagnose for $error {
            fn diagnose(&self) -> crate::diagnosis::Diagnosis {
                self.diagnosis()
            }
        }

        impl From<$error> for std::io::Error {
            fn from(error: $error) -> Self {
                Self::new(error.kind(), error)
            }
        }
    )*};
}

pub(crate) use diagnosed;

/// What to do after a system call that failed for a reason without an error of its own.
pub(crate) fn system_hint(failure: &io::Error) -> &'static str {
    match failure.raw_os_error() {
        Some(libc::EMFILE) => "close unused descriptors, or raise ulimit -n",
        Some(libc::ENFILE) => "raise /proc/sys/fs/file-max as root",
        Some(libc::ENOMEM) => "raise memory.max of this cgroup, or free memory in it",
        Some(libc::EAGAIN) => "raise ulimit -u, or pids.max of this cgroup",
        // Another process that has the endpoint ended this side.
        Some(libc::EPIPE) => "open it again",
        Some(libc::EPERM | libc::ENOSYS) => {
            "check for a seccomp filter, or a kernel older than Linux 6.1"
        }
        _ => "run 'sluice doctor'",
    }
}

pub(crate) fn capacity_hint(error: &InvalidCapacity) -> String {
    let (min, max) = (error.min, Capacity::MAX);
    format!("choose a power of two from {min} to {max} bytes")
}

/// The kind in the standard library, which has none for some numbers, and for ESTALE that of a file system.
fn kind(errno: i32) -> ErrorKind {
    match errno {
        libc::EBADF | libc::EMSGSIZE | libc::ENOTTY => ErrorKind::InvalidInput,
        libc::EBADMSG | libc::EPROTO => ErrorKind::InvalidData,
        libc::ENODATA => ErrorKind::UnexpectedEof,
        libc::ENODEV | libc::EOPNOTSUPP => ErrorKind::Unsupported,
        libc::EIDRM => ErrorKind::BrokenPipe,
        libc::ESHUTDOWN => ErrorKind::ConnectionAborted,
        libc::ESTALE => ErrorKind::ResourceBusy,
        libc::ENXIO => ErrorKind::Other,
        libc::EUSERS => ErrorKind::QuotaExceeded,
        errno => io::Error::from_raw_os_error(errno).kind(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_that_a_caller_tests_for_are_known() {
        for (errno, expected) in [
            (libc::EAGAIN, ErrorKind::WouldBlock),
            (libc::ETIMEDOUT, ErrorKind::TimedOut),
            (libc::EINTR, ErrorKind::Interrupted),
            (libc::EPIPE, ErrorKind::BrokenPipe),
            (libc::ENOENT, ErrorKind::NotFound),
            (libc::EEXIST, ErrorKind::AlreadyExists),
            (libc::EACCES, ErrorKind::PermissionDenied),
            (libc::ENOTCONN, ErrorKind::NotConnected),
            (libc::ENOSYS, ErrorKind::Unsupported),
            (libc::EDQUOT, ErrorKind::QuotaExceeded),
            (libc::ENOMEM, ErrorKind::OutOfMemory),
            (libc::ECONNRESET, ErrorKind::ConnectionReset),
            (libc::ECONNREFUSED, ErrorKind::ConnectionRefused),
            (libc::EBUSY, ErrorKind::ResourceBusy),
            (libc::EBADF, ErrorKind::InvalidInput),
            (libc::ENOTTY, ErrorKind::InvalidInput),
            (libc::EBADMSG, ErrorKind::InvalidData),
            (libc::ENODATA, ErrorKind::UnexpectedEof),
            (libc::ENODEV, ErrorKind::Unsupported),
            (libc::EOPNOTSUPP, ErrorKind::Unsupported),
            (libc::EIDRM, ErrorKind::BrokenPipe),
            (libc::ESHUTDOWN, ErrorKind::ConnectionAborted),
            (libc::ESTALE, ErrorKind::ResourceBusy),
            (libc::EUSERS, ErrorKind::QuotaExceeded),
        ] {
            assert_eq!(kind(errno), expected, "{errno}");
        }
    }
}
