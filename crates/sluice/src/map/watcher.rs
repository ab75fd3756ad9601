// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fmt;
use std::io::IoSliceMut;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::io::{Errno, preadv2};
use sluice_abi::{self as abi, map};

use super::error::WatchError;
use super::event::Event;
use crate::sys::ioctl;
use crate::system_error::SystemError;
use crate::wait::{Failure, NO_OFFSET, Wait, wait_readable, within};

/// The longest event has less than 5 KiB.
const BUFFER: usize = 64 << 10;

/// Which changes a [`Watcher`] receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WatchFrom {
    /// Those from now on.
    Now,
    /// Those after the one with this sequence, such as the version of an entry; 0: all. Changes that the map does not keep any more are
    /// [missed](Event::missed). Without such a change the watch fails with [`WatchError::NoSuchChange`].
    After(u64),
}

/// Receives the changes of a map, in their order.
///
/// It reads as many events as there are at once, and returns them one by one. To continue after a dropped watcher, watch
/// [after](WatchFrom::After) the sequence of the last event that it returned.
///
/// On a [nonblocking](super::Options::nonblocking) endpoint the calls that wait fail with [`WatchError::Empty`] instead.
pub struct Watcher {
    endpoint: OwnedFd,
    /// That of the map.
    watched: Arc<AtomicBool>,
    since: u64,
    buffer: Vec<u8>,
    /// The part of the buffer with events that were not returned yet.
    filled: Range<usize>,
}

impl Watcher {
    pub(super) fn new(
        endpoint: BorrowedFd<'_>,
        watched: &Arc<AtomicBool>,
        from: WatchFrom,
    ) -> Result<Self, WatchError> {
        let endpoint = endpoint
            .try_clone_to_owned()
            .map_err(|error| SystemError::new("duplicating the descriptor of the map", error))?;
        if watched.swap(true, Ordering::Relaxed) {
            return Err(WatchError::AlreadyWatched);
        }
        // From here on its drop clears `watched`.
        let mut watcher = Self {
            endpoint,
            watched: Arc::clone(watched),
            since: 0,
            buffer: Vec::new(),
            filled: 0..0,
        };
        watcher.since = start(watcher.as_fd(), from)?;
        Ok(watcher)
    }

    /// The sequence of the last change before the first event: that of the map at the beginning of the watch, or the given one.
    pub fn since(&self) -> u64 {
        self.since
    }

    /// Returns the next event. Waits for one.
    pub fn recv(&mut self) -> Result<Event, WatchError> {
        self.recv_within(Wait::Forever)
    }

    /// As [`recv`](Self::recv), but fails with [`WatchError::Empty`] instead of waiting.
    pub fn try_recv(&mut self) -> Result<Event, WatchError> {
        self.recv_within(Wait::Never)
    }

    /// As [`recv`](Self::recv), but waits at most for `timeout`, then fails with [`WatchError::TimedOut`].
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<Event, WatchError> {
        self.recv_within(Wait::For(timeout))
    }

    /// As [`recv`](Self::recv), but waits for the given time.
    pub fn recv_within(&mut self, wait: impl Into<Wait>) -> Result<Event, WatchError> {
        if self.filled.is_empty() {
            let len = self.fill(wait.into())?;
            self.filled = 0..len;
        }
        let bytes = &self.buffer[self.filled.clone()];
        match Event::split(bytes) {
            Ok((event, size)) => {
                self.filled.start += size;
                Ok(event)
            }
            Err(error) => {
                self.filled = 0..0;
                Err(error)
            }
        }
    }

    /// Reads as many events as there are and the buffer holds.
    fn fill(&mut self, wait: Wait) -> Result<usize, WatchError> {
        self.buffer.resize(BUFFER, 0);
        let (endpoint, buffer) = (self.endpoint.as_fd(), &mut self.buffer);
        let read = within(
            wait,
            |flags| preadv2(endpoint, &mut [IoSliceMut::new(buffer)], NO_OFFSET, flags),
            |time| wait_readable(endpoint, time),
        );
        read.map_err(|failure| match failure {
            Failure::Call(errno) => WatchError::new(errno),
            Failure::TimedOut(limit) => WatchError::TimedOut(limit),
        })
    }
}

/// Starts the watch of the endpoint.
fn start(endpoint: BorrowedFd<'_>, from: WatchFrom) -> Result<u64, WatchError> {
    let sequence = match from {
        WatchFrom::Now => map::NOW,
        WatchFrom::After(sequence) => sequence,
    };
    let mut setting = abi::Setting::new(sequence);
    match ioctl(endpoint, map::WATCH, &mut setting) {
        Ok(_) => Ok(setting.value),
        Err(error) => Err(match Errno::from_io_error(&error) {
            Some(Errno::INVAL) => WatchError::NoSuchChange { sequence },
            errno => WatchError::new(errno.unwrap_or(Errno::IO)),
        }),
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.watched.store(false, Ordering::Relaxed);
    }
}

impl AsFd for Watcher {
    /// The endpoint, which is readable when there is an event or the map was destroyed. Events that were received with an earlier one
    /// do not count: call [`try_recv`](Self::try_recv) until there are none before waiting for it.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.endpoint.as_fd()
    }
}

impl AsRawFd for Watcher {
    fn as_raw_fd(&self) -> RawFd {
        self.endpoint.as_raw_fd()
    }
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watcher")
            .field("since", &self.since)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// A watcher of a socket, into which a test writes events.
    fn pair() -> (UnixStream, Watcher) {
        let (writer, reader) = UnixStream::pair().unwrap();
        let watcher = Watcher {
            endpoint: reader.into(),
            watched: Arc::default(),
            since: 0,
            buffer: Vec::new(),
            filled: 0..0,
        };
        (writer, watcher)
    }

    fn encode(sequence: u64) -> Vec<u8> {
        let event = map::Event {
            size: 40,
            change: map::CREATED,
            key_length: 3,
            sequence,
            version: sequence,
            missed: 0,
        };
        [&event.to_bytes()[..], b"key\0\0\0\0\0"].concat()
    }

    #[test]
    fn the_events_of_one_read_are_returned_one_by_one() {
        let (mut writer, mut watcher) = pair();
        writer
            .write_all(&[encode(1), encode(2), encode(3)].concat())
            .unwrap();
        for sequence in 1..=3 {
            let event = watcher.recv().unwrap();
            assert_eq!((event.sequence, &event.key[..]), (sequence, &b"key"[..]));
        }
    }

    #[test]
    fn an_invalid_event_is_not_returned_again() {
        let (mut writer, mut watcher) = pair();
        writer.write_all(&encode(1)[..39]).unwrap();
        let invalid = watcher.recv();
        assert!(
            matches!(invalid, Err(WatchError::InvalidEvent { len: 39 })),
            "{invalid:?}"
        );
        writer.write_all(&encode(2)).unwrap();
        assert_eq!(watcher.recv().unwrap().sequence, 2);
    }

    #[test]
    fn a_failed_watch_can_be_repeated() {
        let (_writer, reader) = UnixStream::pair().unwrap();
        let watched = Arc::default();
        for _ in 0..2 {
            let failed = Watcher::new(reader.as_fd(), &watched, WatchFrom::Now);
            assert!(matches!(failed, Err(WatchError::System(_))), "{failed:?}");
        }
        watched.store(true, Ordering::Relaxed);
        let second = Watcher::new(reader.as_fd(), &watched, WatchFrom::After(0));
        assert!(
            matches!(second, Err(WatchError::AlreadyWatched)),
            "{second:?}"
        );
        assert!(watched.load(Ordering::Relaxed));
    }
}
