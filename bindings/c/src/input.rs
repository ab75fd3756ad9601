// SPDX-License-Identifier: MIT OR Apache-2.0
//! What C passes: texts, bytes, structures with a size, and timeouts.

use std::error::Error;
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr;
use std::slice;
use std::time::Duration;

use sluice::Wait;

use crate::error::{Failure, Result, would_block};

/// An argument that is not NULL.
#[inline]
pub fn given<T>(argument: Option<T>) -> Result<T> {
    argument.ok_or_else(null)
}

#[cold]
fn null() -> Failure {
    Failure::invalid(
        c"an argument is NULL",
        c"pass an object that was opened, and where the result goes",
    )
}

/// # Safety
/// The text is NULL or ends with a zero, and does not change during 'a.
pub unsafe fn text<'a>(text: *const c_char) -> Result<&'a [u8]> {
    match text.is_null() {
        true => Err(null()),
        // SAFETY: as the caller guarantees.
        false => Ok(unsafe { CStr::from_ptr(text) }.to_bytes()),
    }
}

/// # Safety
/// As text().
pub unsafe fn path<'a>(path: *const c_char) -> Result<&'a Path> {
    // SAFETY: as the caller guarantees.
    let bytes = unsafe { text(path) }?;
    Ok(Path::new(OsStr::from_bytes(bytes)))
}

/// # Safety
/// There are so many values, unless the pointer is NULL, and they do not change during 'a.
#[inline]
pub unsafe fn array<'a, T>(start: *const T, count: usize) -> Result<&'a [T]> {
    match start.is_null() {
        true if count == 0 => Ok(&[]),
        false if is_possible::<T>(count) => {
            // SAFETY: as the caller guarantees.
            Ok(unsafe { slice::from_raw_parts(start, count) })
        }
        _ => Err(bad_length()),
    }
}

/// # Safety
/// There is room for so many values, unless the pointer is NULL, and nothing else accesses it during 'a.
#[inline]
pub unsafe fn array_mut<'a, T>(start: *mut T, count: usize) -> Result<&'a mut [T]> {
    match start.is_null() {
        true if count == 0 => Ok(&mut []),
        false if is_possible::<T>(count) => {
            // SAFETY: as the caller guarantees.
            Ok(unsafe { slice::from_raw_parts_mut(start, count) })
        }
        _ => Err(bad_length()),
    }
}

/// # Safety
/// As array().
#[inline]
pub unsafe fn bytes<'a>(start: *const c_void, length: usize) -> Result<&'a [u8]> {
    // SAFETY: as the caller guarantees.
    unsafe { array(start.cast(), length) }
}

/// # Safety
/// As array_mut().
#[inline]
pub unsafe fn room<'a>(start: *mut c_void, size: usize) -> Result<&'a mut [u8]> {
    // SAFETY: as the caller guarantees.
    unsafe { array_mut(start.cast(), size) }
}

/// A descriptor that is closed by execve(2) from now on, as those that the library opens.
///
/// # Safety
/// The descriptor belongs to the caller, which gives it away.
pub unsafe fn owned(fd: c_int) -> Result<OwnedFd> {
    // SAFETY: the call has no addresses.
    match unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } {
        // SAFETY: it is open, and as the caller guarantees.
        0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(not_open()),
    }
}

#[cold]
pub fn not_open() -> Failure {
    let message = c"the descriptor is not open";
    Failure::new(libc::EBADF, message, c"pass an open one")
}

fn is_possible<T>(count: usize) -> bool {
    count
        .checked_mul(size_of::<T>())
        .is_some_and(|size| isize::try_from(size).is_ok())
}

#[cold]
fn bad_length() -> Failure {
    Failure::invalid(
        c"a buffer is NULL or impossibly long",
        c"pass the start of the buffer and its length",
    )
}

/// A structure of options.
///
/// # Safety
/// It has the layout of C, begins with its size, a usize, and consists of integers and of pointers that may be NULL.
pub unsafe trait Options: Copy {
    /// The size in the first release that has the structure. A structure that has grown keeps it.
    const FIRST_SIZE: usize;

    /// Whether the reserved fields are zero.
    fn is_reserved_zero(&self) -> bool;
}

/// Implements [`Options`] for structures with these first sizes and these reserved fields.
macro_rules! options_of_c {
    ($($options:ident($first:literal): $($reserved:ident),+;)+) => {$(
        // SAFETY: it is such a structure.
        unsafe impl crate::input::Options for $options {
            const FIRST_SIZE: usize = $first;

            fn is_reserved_zero(&self) -> bool {
                $(crate::input::is_zero(&self.$reserved))&&+
            }
        }
    )+};
}
pub(crate) use options_of_c;

pub fn is_zero<T: Default + PartialEq>(field: &T) -> bool {
    *field == T::default()
}

/// No structure of options will ever be longer.
const OPTIONS_MAX: usize = 4096;

/// The options that C passes; NULL: zeros. The fields that a program with an earlier header does not have are zeros. A program with a later
/// header may have more fields than this library knows; they must be zero.
///
/// # Safety
/// The pointer is NULL or points to such a structure.
pub unsafe fn options<T: Options>(passed: *const T) -> Result<T> {
    let mut options = MaybeUninit::<T>::zeroed();
    if passed.is_null() {
        // SAFETY: the trait guarantees that zeros are a value.
        return Ok(unsafe { options.assume_init() });
    }
    // SAFETY: it begins with its size.
    let size = unsafe { passed.cast::<usize>().read() };
    if !(T::FIRST_SIZE..=OPTIONS_MAX).contains(&size) {
        return Err(Failure::invalid(
            c"the options have an unknown size",
            c"initialise them with the macro SLUICE_..._OPTIONS_INIT",
        ));
    }
    // SAFETY: it has this size.
    let passed = unsafe { slice::from_raw_parts(passed.cast::<u8>(), size) };
    let (known, later) = passed.split_at(size.min(size_of::<T>()));
    // SAFETY: the trait guarantees that all bytes are a value.
    let options = unsafe {
        ptr::copy_nonoverlapping(known.as_ptr(), options.as_mut_ptr().cast(), known.len());
        options.assume_init()
    };
    check_zero(options.is_reserved_zero() && later.iter().all(|byte| *byte == 0))?;
    Ok(options)
}

/// Fails unless the fields that this library does not know are zero.
pub fn check_zero(is_zero: bool) -> Result<()> {
    match is_zero {
        true => Ok(()),
        false => Err(Failure::invalid(
            c"the options have a field that this library does not know",
            c"leave it zero, or use a later version of the library",
        )),
    }
}

/// Fails if there are other flags than the known ones.
pub fn check_flags(flags: u32, known: u32) -> Result<()> {
    match flags & !known {
        0 => Ok(()),
        _ => Err(Failure::invalid(
            c"the options have a flag that this library does not know",
            c"leave it out, or use a later version of the library",
        )),
    }
}

/// Whether the flag is set.
pub fn has(flags: u32, flag: u32) -> bool {
    flags & flag != 0
}

/// A timeout in milliseconds, as of poll(2).
#[derive(Clone, Copy)]
pub struct Timeout(pub c_int);

impl Timeout {
    /// Runs a call of a bus, a watcher or a reader. Without a limit the library waits in the kernel, which does not wait if the descriptor has
    /// O_NONBLOCK, as uv_poll_init() of libuv sets it; with a limit it waits by poll(2), also with the longest one.
    #[inline]
    pub fn run<T, E: Error + 'static>(
        self,
        mut attempt: impl FnMut(Wait) -> std::result::Result<T, E>,
    ) -> Result<T> {
        let wait = Wait::from(self);
        Ok(match attempt(wait) {
            Err(error) if wait == Wait::Forever && would_block(&error).is_some() => {
                attempt(Wait::For(Duration::MAX))?
            }
            outcome => outcome?,
        })
    }
}

impl From<Timeout> for Wait {
    fn from(Timeout(ms): Timeout) -> Self {
        match ms {
            ..0 => Self::Forever,
            0 => Self::Never,
            ms => Self::For(Duration::from_millis(ms.unsigned_abs().into())),
        }
    }
}

/// A time in options: 0 is the default, a negative one no time.
pub fn spin_limit(nanoseconds: i64) -> Option<Duration> {
    match nanoseconds {
        0 => None,
        i64::MAX => Some(Duration::MAX),
        ns => Some(Duration::from_nanos(ns.max(0).unsigned_abs())),
    }
}

pub fn milliseconds(ms: u32) -> Option<Duration> {
    (ms != 0).then(|| Duration::from_millis(ms.into()))
}

/// Nanoseconds, as far as they fit.
pub fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A structure that had no field `second` in its first release.
    #[derive(Clone, Copy, Debug)]
    #[repr(C)]
    struct Known {
        size: usize,
        first: u64,
        reserved: u64,
        second: u64,
    }

    const FIRST_SIZE: usize = size_of::<Known>() - size_of::<u64>();

    // SAFETY: it begins with its size, and consists of integers.
    unsafe impl Options for Known {
        const FIRST_SIZE: usize = FIRST_SIZE;

        fn is_reserved_zero(&self) -> bool {
            self.reserved == 0
        }
    }

    #[repr(C)]
    struct Later {
        known: Known,
        more: u64,
    }

    fn read(later: &Later) -> std::result::Result<(u64, u64), c_int> {
        // SAFETY: it is such a structure, perhaps of an earlier or a later version.
        let options = unsafe { options(ptr::from_ref(later).cast::<Known>()) };
        options
            .map(|known| (known.first, known.second))
            .map_err(|failure| failure.returned())
    }

    fn later(size: usize) -> Later {
        let known = Known {
            size,
            first: 7,
            reserved: 0,
            second: 8,
        };
        Later { known, more: 0 }
    }

    #[test]
    fn options_may_be_those_of_an_earlier_or_a_later_version() {
        assert_eq!(read(&later(FIRST_SIZE)), Ok((7, 0)));
        for size in [size_of::<Known>(), size_of::<Later>()] {
            assert_eq!(read(&later(size)), Ok((7, 8)));
        }
        let mut used = later(size_of::<Later>());
        used.more = 1;
        assert_eq!(read(&used), Err(-libc::EINVAL));
        used.known.size = size_of::<Known>();
        assert_eq!(read(&used), Ok((7, 8)));
    }

    #[test]
    fn other_sizes_and_reserved_fields_are_refused() {
        for size in [0, 1, FIRST_SIZE - 1, OPTIONS_MAX + 1, usize::MAX] {
            assert_eq!(read(&later(size)), Err(-libc::EINVAL), "{size}");
        }
        let mut reserved = later(size_of::<Known>());
        reserved.known.reserved = 1;
        assert_eq!(read(&reserved), Err(-libc::EINVAL));
        // SAFETY: NULL is permitted.
        let default = unsafe { options::<Known>(ptr::null()) }.unwrap();
        assert_eq!((default.first, default.second), (0, 0));
    }

    #[test]
    fn lengths_that_cannot_be_are_refused() {
        let byte = [1_u8];
        // SAFETY: the length is possible only where there are so many bytes.
        unsafe {
            assert_eq!(bytes(byte.as_ptr().cast(), 1).unwrap(), [1]);
            assert_eq!(bytes(ptr::null(), 0).unwrap(), []);
            assert!(bytes(ptr::null(), 1).is_err());
            assert!(bytes(byte.as_ptr().cast(), usize::MAX).is_err());
            assert!(array(byte.as_ptr().cast::<u64>(), usize::MAX / 8).is_err());
        }
    }

    #[test]
    fn a_call_without_a_limit_waits_also_if_the_kernel_does_not() {
        fn run(ms: c_int) -> (Vec<Wait>, Result<u8>) {
            let mut waits = Vec::new();
            let result = Timeout(ms).run(|wait| {
                waits.push(wait);
                match wait {
                    Wait::For(Duration::MAX) => Ok(7),
                    _ => Err(sluice::bus::RecvError::Empty),
                }
            });
            (waits, result)
        }
        let (waits, result) = run(-1);
        assert_eq!(waits, [Wait::Forever, Wait::For(Duration::MAX)]);
        assert_eq!(result.unwrap(), 7);
        let (waits, result) = run(0);
        assert_eq!(waits, [Wait::Never]);
        assert_eq!(result.unwrap_err().returned(), -libc::EAGAIN);
    }

    #[test]
    fn timeouts_are_those_of_poll() {
        assert_eq!(Wait::from(Timeout(-1)), Wait::Forever);
        assert_eq!(Wait::from(Timeout(c_int::MIN)), Wait::Forever);
        assert_eq!(Wait::from(Timeout(0)), Wait::Never);
        assert_eq!(Wait::from(Timeout(7)), Wait::For(Duration::from_millis(7)));
        assert_eq!(spin_limit(0), None);
        assert_eq!(spin_limit(-1), Some(Duration::ZERO));
        assert_eq!(spin_limit(5), Some(Duration::from_nanos(5)));
    }
}
