// SPDX-License-Identifier: MIT OR Apache-2.0
//! What all errors of this library tell beside their messages, and how it is found in an error of any type.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::io::{self, ErrorKind};

use sluice_ring::{Capacity, InvalidCapacity};

use crate::{bus, feed, keeper, map, ring};

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

    /// Finds the diagnosis in an error of this library, in what caused an error of another type, or in an [`io::Error`] to which one
    /// was converted.
    ///
    /// ```
    /// let error = std::io::Error::from(sluice::ring::SendError::Full);
    /// let diagnosis = sluice::Diagnosis::of(&error).expect("it is an error of this library");
    /// assert_eq!(diagnosis.kind, std::io::ErrorKind::WouldBlock);
    /// println!("{error}; {}", diagnosis.hint);
    /// ```
    pub fn of(error: &(dyn StdError + 'static)) -> Option<Self> {
        chain(error).find_map(|error| FINDERS.iter().find_map(|find| find(error)))
    }
}

/// The message of an error, its causes, and what to do about it if it is one of this library, in one line.
///
/// ```
/// let text = sluice::explain(&sluice::ring::SendError::Full);
/// assert_eq!(text, "the ring is full; try again later, or use a blocking call");
/// ```
pub fn explain(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    for cause in chain(error).skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    match Diagnosis::of(error) {
        Some(diagnosis) => format!("{text}; {}", diagnosis.hint),
        None => text,
    }
}

/// The error and its causes. An [`io::Error`] that was made of another error names only the causes of that as its own.
fn chain<'a>(
    error: &'a (dyn StdError + 'static),
) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |error| {
        let error = *error;
        match error.downcast_ref::<io::Error>() {
            Some(error) => error.get_ref().map(|error| error as _),
            None => error.source(),
        }
    })
}

/// An error of this library.
pub trait Diagnose: StdError + 'static {
    fn diagnose(&self) -> Diagnosis;
}

type Finder = fn(&(dyn StdError + 'static)) -> Option<Diagnosis>;

fn find<E: Diagnose>(error: &(dyn StdError + 'static)) -> Option<Diagnosis> {
    error.downcast_ref::<E>().map(E::diagnose)
}

/// For each type of [`diagnosed!`].
const FINDERS: &[Finder] = &[
    find::<crate::Error>,
    find::<bus::OpenError>,
    find::<bus::SendError>,
    find::<bus::RecvError>,
    find::<map::OpenError>,
    find::<map::ReadError>,
    find::<map::WriteError>,
    find::<map::SyncError>,
    find::<map::WatchError>,
    find::<map::StoreError>,
    #[cfg(feature = "serde")]
    find::<map::CodecError>,
    #[cfg(feature = "serde")]
    find::<map::TypedError<map::ReadError>>,
    #[cfg(feature = "serde")]
    find::<map::TypedError<map::WriteError>>,
    find::<ring::SetupError>,
    find::<ring::SendError>,
    find::<ring::RecvError>,
    find::<ring::SystemError>,
    find::<feed::RecvError>,
    find::<feed::SimulatorError>,
    find::<keeper::OpenError>,
    find::<keeper::ReadError>,
    find::<keeper::CallError>,
    find::<keeper::RestoreError>,
];

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
    use crate::Error;

    fn failed() -> Error {
        Error::io("opening", io::Error::from_raw_os_error(libc::EIO))
    }

    #[test]
    fn a_diagnosis_is_found_below_other_errors() {
        #[derive(Debug, thiserror::Error)]
        #[error("no configuration")]
        struct Outer(#[source] io::Error);

        let direct = failed();
        let errors: [&(dyn StdError + 'static); 3] = [
            &direct,
            &io::Error::from(failed()),
            &Outer(io::Error::from(failed())),
        ];
        for error in errors {
            let diagnosis = Diagnosis::of(error).unwrap();
            assert_eq!(diagnosis.raw_os_error, Some(libc::EIO));
            assert!(diagnosis.hint.contains("doctor"), "{diagnosis:?}");
        }
        assert_eq!(Diagnosis::of(&io::Error::other("text")), None);
    }

    #[test]
    fn an_explanation_has_each_part_once() {
        let os = io::Error::from_raw_os_error(libc::EIO);
        let expected = format!("opening failed: {os}; run 'sluice doctor'");
        assert_eq!(explain(&failed()), expected);
        assert_eq!(explain(&io::Error::from(failed())), expected);
        assert_eq!(explain(&io::Error::other("text")), "text");
    }

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
