// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors: a number that the failed call returns, and a text that the thread keeps.

use std::borrow::Cow;
use std::cell::RefCell;
use std::error::Error;
use std::ffi::{CStr, CString, c_char, c_int};
use std::io::{self, ErrorKind};

use sluice::{Diagnosis, bus, feed, map, ring};

pub type Result<T> = std::result::Result<T, Failure>;

/// A failed call, whose text the thread has stored. The number is one of errno(3).
#[derive(Debug)]
pub struct Failure {
    errno: c_int,
}

/// The largest errno of the kernel.
const ERRNO_MAX: c_int = 4095;

/// The text of the last failed call.
struct Last {
    message: Cow<'static, CStr>,
    hint: Cow<'static, CStr>,
}

thread_local! {
    static LAST: RefCell<Last> = const {
        RefCell::new(Last {
            message: Cow::Borrowed(c""),
            hint: Cow::Borrowed(c""),
        })
    };
}

impl Failure {
    /// A failure that this crate found.
    #[cold]
    #[inline(never)]
    pub fn new(errno: c_int, message: &'static CStr, hint: &'static CStr) -> Self {
        store(message.into(), hint.into());
        Self { errno }
    }

    /// An argument that no call can have.
    #[cold]
    #[inline(never)]
    pub fn invalid(message: &'static CStr, hint: &'static CStr) -> Self {
        Self::new(libc::EINVAL, message, hint)
    }

    /// The end of a stream, which is no error.
    #[cold]
    pub fn ended() -> Self {
        Self::new(
            libc::ENODATA,
            c"the end of the stream: all was received, and nothing follows",
            c"",
        )
    }

    /// What the call returns.
    pub fn returned(&self) -> c_int {
        -self.errno
    }

    fn of(error: &(dyn Error + 'static)) -> Self {
        if let Some(message) = would_block(error) {
            return Self::new(libc::EAGAIN, message, AGAIN);
        }
        let text = sluice::explain(error);
        let Some(diagnosis) = Diagnosis::of(error) else {
            store(c_text(text), Cow::Borrowed(c""));
            let io_error = error.downcast_ref::<io::Error>();
            return Self::numbered(io_error.and_then(io::Error::raw_os_error));
        };
        let message = text
            .strip_suffix(&*diagnosis.hint)
            .and_then(|text| text.strip_suffix("; "))
            .unwrap_or(&text);
        store(
            c_text(message.to_owned()),
            c_text(diagnosis.hint.into_owned()),
        );
        Self::numbered(match diagnosis.kind {
            ErrorKind::InvalidInput => diagnosis.raw_os_error.or(Some(libc::EINVAL)),
            _ => diagnosis.raw_os_error,
        })
    }

    /// A failure whose text is stored. Another number than those of the kernel could be the result of a success.
    fn numbered(errno: Option<c_int>) -> Self {
        let errno = errno.filter(|errno| (1..=ERRNO_MAX).contains(errno));
        Self {
            errno: errno.unwrap_or(libc::EIO),
        }
    }
}

impl<E: Error + 'static> From<E> for Failure {
    /// Not inlined, so that a call that succeeds needs no registers for it.
    #[cold]
    #[inline(never)]
    fn from(error: E) -> Self {
        Self::of(&error)
    }
}

pub const AGAIN: &CStr = c"try again later, or use a timeout";

/// The text of an error for which programs call in a loop. It costs no allocation.
pub fn would_block(error: &(dyn Error + 'static)) -> Option<&'static CStr> {
    let is_empty = matches!(error.downcast_ref(), Some(ring::RecvError::Empty));
    let is_full = matches!(error.downcast_ref(), Some(ring::SendError::Full));
    let has_no_message = matches!(error.downcast_ref(), Some(bus::RecvError::Empty));
    let is_full_bus = matches!(error.downcast_ref(), Some(bus::SendError::Full));
    let has_no_event = matches!(error.downcast_ref(), Some(map::WatchError::Empty));
    let has_no_packet = matches!(error.downcast_ref(), Some(feed::RecvError::Empty));
    [
        (is_empty, c"the ring is empty"),
        (is_full, c"the ring is full"),
        (has_no_message, c"the bus has no message"),
        (is_full_bus, c"the bus is full"),
        (has_no_event, c"the map has no event"),
        (has_no_packet, c"the feed has no packet"),
    ]
    .into_iter()
    .find_map(|(is_it, text)| is_it.then_some(text))
}

fn store(message: Cow<'static, CStr>, hint: Cow<'static, CStr>) {
    // A thread that ends has no text any more.
    let _ = LAST.try_with(|last| *last.borrow_mut() = Last { message, hint });
}

/// Without the zeros that a text cannot have in C.
fn c_text(text: String) -> Cow<'static, CStr> {
    let bytes: Vec<u8> = text.into_bytes().into_iter().filter(|b| *b != 0).collect();
    CString::new(bytes).unwrap_or_default().into()
}

fn last(part: fn(&Last) -> &CStr) -> *const c_char {
    LAST.try_with(|last| part(&last.borrow()).as_ptr())
        .unwrap_or(c"".as_ptr())
}

/// The message of the last call of this thread that has failed: what failed, and the causes. "" if none has. Valid until the next call of
/// this thread that fails.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_error_message() -> *const c_char {
    last(|last| &last.message)
}

/// What to do about the last failure of this thread, such as "start the reader first"; "" if there is no advice. Valid as
/// sluice_error_message().
#[unsafe(no_mangle)]
pub extern "C" fn sluice_error_hint() -> *const c_char {
    last(|last| &last.hint)
}

/// The general meaning of an error number in this library, which sluice_error_message() tells more precisely. Takes errno values, negative
/// as the functions return them or positive. Never NULL.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_strerror(error: c_int) -> *const c_char {
    meaning(error.saturating_abs()).as_ptr()
}

fn meaning(errno: c_int) -> &'static CStr {
    match errno {
        0 => c"success",
        libc::EAGAIN => c"the call would have to wait",
        libc::ETIMEDOUT => c"timeout",
        libc::ENODATA => c"the end of the stream",
        libc::EPIPE => c"the peer has closed the channel, or the channel was destroyed",
        libc::ECONNRESET => c"the peer died, or ended without an answer",
        libc::EBUSY => c"in use, or a record or a reservation of the object is held",
        libc::EINVAL => c"invalid argument, or options that do not go together",
        libc::EINTR => c"a signal arrived; the durable map may have been created",
        libc::EMSGSIZE => c"longer than the buffer, or than the channel permits",
        libc::ENOENT => c"no such channel, entry or subscriber, or the module is not loaded",
        libc::EEXIST => c"the channel or the entry exists",
        libc::ESTALE => c"the entry has another version",
        libc::EACCES => c"permission denied",
        libc::EPERM => c"not permitted for this user",
        libc::ENOSPC => c"a quota of the scope, the map or its store is full",
        libc::EDQUOT => c"a quota of the user is full",
        libc::ENOMEM => c"out of memory, or the limit of the memory cgroup",
        libc::ENXIO => c"not usable in a forked child, or a pipe without a reader",
        libc::EPROTO => c"the peer violated the protocol",
        libc::EPROTONOSUPPORT => c"the peer has another version of the protocol",
        libc::EALREADY => c"both sides of the ring have the same role",
        libc::ERANGE => c"a capacity that one side does not accept",
        libc::ECONNABORTED => c"the peer ended during the handshake",
        libc::ECONNREFUSED => c"no process listens there",
        libc::EADDRINUSE => c"a process listens there already",
        libc::ESHUTDOWN => c"the subscriber was evicted, because it did not keep up",
        libc::ENOTCONN => c"the bus has no subscriber, or no server",
        libc::ENOBUFS => c"the reply may be lost, because the client did not receive",
        libc::EOPNOTSUPP => c"not supported by this channel, or no cgroup v2",
        libc::EUSERS => c"the bus has as many subscribers as permitted",
        libc::EIDRM => c"the durable map was removed",
        libc::EIO => c"input/output error",
        libc::EROFS => c"the store of durable maps is read-only",
        libc::EBADF => c"not open for this purpose, or not a cgroup directory",
        libc::EBADMSG => c"invalid data: the module and the library have different versions",
        libc::ENOTTY => c"the descriptor is not an endpoint of this kind",
        libc::ENOSYS => c"the loaded module is too old",
        _ => c"an error of the system, see errno(3)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(of: extern "C" fn() -> *const c_char) -> String {
        // SAFETY: the text is valid until the next failure of this thread.
        unsafe { CStr::from_ptr(of()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_failure_has_message_and_hint_apart() {
        assert_eq!(text(sluice_error_message), "");
        let error = sluice::Pipe::named("a/b").reader().unwrap_err();
        let failure = Failure::from(error);
        assert_eq!(failure.returned(), -libc::EINVAL);
        assert_eq!(
            text(sluice_error_message),
            "invalid channel name 'a/b': contains '/'"
        );
        assert!(text(sluice_error_hint).starts_with("use 1 to 63 bytes"));
        Failure::ended();
        assert_eq!(text(sluice_error_hint), "");
    }

    #[test]
    fn a_call_that_would_block_has_the_text_of_the_library() {
        fn check(error: impl Error + 'static) {
            let message = error.to_string();
            let static_text = would_block(&error).map(CStr::to_str);
            assert_eq!(static_text, Some(Ok(message.as_str())));
            assert_eq!(Failure::from(error).returned(), -libc::EAGAIN);
        }
        check(ring::RecvError::Empty);
        check(ring::SendError::Full);
        check(bus::RecvError::Empty);
        check(bus::SendError::Full);
        check(map::WatchError::Empty);
        check(feed::RecvError::Empty);
        assert_eq!(would_block(&ring::RecvError::PeerDied), None);
    }

    #[test]
    fn an_error_of_another_library_is_an_io_error() {
        let failure = Failure::from(io::Error::other("zero \0 inside"));
        assert_eq!(failure.returned(), -libc::EIO);
        assert_eq!(text(sluice_error_message), "zero  inside");
        for impossible in [0, -libc::EAGAIN, ERRNO_MAX + 1, c_int::MIN] {
            let failure = Failure::from(io::Error::from_raw_os_error(impossible));
            assert_eq!(failure.returned(), -libc::EIO);
        }
        let no_descriptor = Failure::from(io::Error::from_raw_os_error(libc::EMFILE));
        assert_eq!(no_descriptor.returned(), -libc::EMFILE);
    }
}
