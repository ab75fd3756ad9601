// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waits that release the GIL and end by a signal.
//!
//! A wait is a sequence of waits of at most [`SLICE`] without the GIL; between two of them the handlers of signals run. A wait that only a
//! signal ends would not suffice: the kernel may deliver the signal to another thread, or between the last check and the system call.

use std::error::Error as StdError;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use sluice::{bus, feed, map, ring};

use crate::error::{OrRaise as _, exception};

/// The longest time from a signal to its handler.
const SLICE: Duration = Duration::from_millis(50);

/// A time in seconds.
pub struct Seconds(Duration);

impl<'py> FromPyObject<'_, 'py> for Seconds {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let seconds: f64 = object.extract()?;
        if seconds == f64::INFINITY {
            return Ok(Self(Duration::MAX));
        }
        Duration::try_from_secs_f64(seconds)
            .map(Self)
            .map_err(|_| PyValueError::new_err(format!("invalid time of {seconds} seconds")))
    }
}

impl From<Seconds> for Duration {
    fn from(time: Seconds) -> Self {
        time.0
    }
}

/// How long a call waits: None without a limit, 0 not at all.
#[derive(Clone, Copy)]
pub struct Limit(Option<Duration>);

impl Limit {
    pub const NONE: Self = Self(None);

    /// Whether the call does not wait.
    pub fn is_now(self) -> bool {
        self.0 == Some(Duration::ZERO)
    }
}

impl From<Option<Seconds>> for Limit {
    fn from(timeout: Option<Seconds>) -> Self {
        Self(timeout.map(Duration::from))
    }
}

/// A wait in progress.
pub struct Waiting {
    limit: Limit,
    began: Instant,
}

impl Waiting {
    pub fn new(limit: Limit) -> Self {
        Self {
            limit,
            began: Instant::now(),
        }
    }

    /// The next part of the wait. Fails at its end.
    pub fn slice<E: Pending>(&self) -> Result<Duration, E> {
        let Limit(Some(limit)) = self.limit else {
            return Ok(SLICE);
        };
        match limit.saturating_sub(self.began.elapsed()) {
            Duration::ZERO if limit.is_zero() => Err(E::pending()),
            Duration::ZERO => Err(E::timed_out(limit)),
            left => Ok(left.min(SLICE)),
        }
    }
}

/// The error of an operation that may have to wait.
pub trait Pending: StdError + Send + Sized + 'static {
    /// The operation would wait.
    fn pending() -> Self;
    fn timed_out(limit: Duration) -> Self;
    /// Whether it is one of the two.
    fn is_pending(&self) -> bool;

    /// The error of the whole wait, with what the one of its last part knows of the peer.
    fn after(self, _last: Option<Self>) -> Self {
        self
    }
}

macro_rules! pending {
    ($($error:ty: $pending:ident $($of_peer:ident)?;)*) => {$(
        impl Pending for $error {
            fn pending() -> Self {
                Self::$pending
            }

            fn timed_out(limit: Duration) -> Self {
                Self::TimedOut(limit.into())
            }

            fn is_pending(&self) -> bool {
                matches!(self, Self::$pending | Self::TimedOut(_))
            }

            $(fn $of_peer(self, last: Option<Self>) -> Self {
                match (self, last) {
                    (Self::TimedOut(whole), Some(Self::TimedOut(last))) => {
                        Self::TimedOut(last.with_limit(whole.limit()))
                    }
                    (error, _) => error,
                }
            })?
        }
    )*};
}

pending! {
    ring::SendError: Full after;
    ring::RecvError: Empty after;
    bus::SendError: Full;
    bus::RecvError: Empty after;
    map::WatchError: Empty;
    feed::RecvError: Empty;
}

/// Repeats an attempt, with the GIL, until it does not fail with a pending error. `sleep` waits without the GIL until another attempt may
/// succeed, up to a time.
pub fn wait_for<S: Send, T, E: Pending>(
    py: Python<'_>,
    limit: Limit,
    endpoint: &mut S,
    mut attempt: impl FnMut(&mut S) -> Result<PyResult<T>, E>,
    mut sleep: impl FnMut(&mut S, Duration) -> Result<(), E> + Send,
) -> PyResult<T> {
    let (mut waiting, mut last) = (None, None);
    loop {
        match attempt(endpoint) {
            Err(error) if error.is_pending() => {}
            done => return done.or_raise(py)?,
        }
        let waiting = waiting.get_or_insert_with(|| Waiting::new(limit));
        let slice = waiting.slice().map_err(|error: E| error.after(last.take()));
        let slice = slice.or_raise(py)?;
        last = match py.detach(|| sleep(endpoint, slice)) {
            Err(error) if !error.is_pending() => return Err(exception(py, &error)),
            slept => slept.err(),
        };
        py.check_signals()?;
    }
}

/// The events of files, and of listeners.
impl Pending for io::Error {
    fn pending() -> Self {
        ErrorKind::WouldBlock.into()
    }

    fn timed_out(limit: Duration) -> Self {
        Self::new(
            ErrorKind::TimedOut,
            format!("timeout: nothing for {limit:?}"),
        )
    }

    fn is_pending(&self) -> bool {
        matches!(self.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
    }
}

/// Waits until a descriptor has one of the events, or has ended, and returns what it has. Returns early after a signal.
pub fn poll(endpoint: &impl AsFd, events: i16, time: Duration) -> i16 {
    let mut asked = libc::pollfd {
        fd: endpoint.as_fd().as_raw_fd(),
        events,
        revents: 0,
    };
    let milliseconds = time
        .as_micros()
        .div_ceil(1000)
        .try_into()
        .unwrap_or(i32::MAX);
    // SAFETY: the address points to one structure.
    match unsafe { libc::poll(&raw mut asked, 1, milliseconds) } {
        1 => asked.revents,
        _ => 0,
    }
}

/// The sleep of a wait until a descriptor is readable.
pub fn readable<E>(endpoint: &mut impl AsFd, time: Duration) -> Result<(), E> {
    poll(endpoint, libc::POLLIN, time);
    Ok(())
}

/// Makes a call that has a limit of its own, and that no signal ends, in another thread. If the handler of a signal raises, that thread
/// continues up to this limit.
pub fn in_thread<T: Send + 'static>(
    py: Python<'_>,
    call: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    let (sender, mut receiver) = mpsc::sync_channel(1);
    thread::Builder::new().spawn(move || {
        // The receiver is dropped if a signal has ended the wait.
        sender.send(call()).ok();
    })?;
    loop {
        let receiver = &mut receiver;
        match py.detach(move || receiver.recv_timeout(SLICE)) {
            Ok(returned) => return Ok(returned),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(PyRuntimeError::new_err(
                    "the thread of the call has panicked",
                ));
            }
        }
    }
}
