// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long a call waits, and waits of read(2) and write(2) with a limit. Blocking calls of buses and maps wait in the
//! module.

use std::num::NonZeroUsize;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::{Errno, ReadWriteFlags};

/// The time for which a call may wait, as an argument of the calls whose names end with `_within`: for programs that get it as a value.
/// `send_within(record, Wait::Never)` is `try_send(record)`, and has its errors. The calls of a ring convert
/// a type that converts into it only if they have to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The call does not wait.
    Never,
    /// The call waits at most for this time.
    For(Duration),
    /// The call waits without a limit.
    Forever,
}

impl Wait {
    #[inline]
    pub(crate) fn is_some(self) -> bool {
        !matches!(self, Self::Never)
    }

    /// The longest time, if there is a limit.
    pub(crate) fn limit(self) -> Option<Duration> {
        match self {
            Self::Never => Some(Duration::ZERO),
            Self::For(limit) => Some(limit),
            Self::Forever => None,
        }
    }

    /// What is left of the time of a call that began at `began`.
    pub(crate) fn left(self, began: Instant) -> Self {
        match self {
            Self::For(limit) => Self::For(limit.saturating_sub(began.elapsed())),
            other => other,
        }
    }

    /// Whether it permits no wait.
    pub(crate) fn is_over(self) -> bool {
        matches!(self, Self::Never | Self::For(Duration::ZERO))
    }
}

/// The default spin limit of rings and feeds.
pub(crate) const DEFAULT_SPIN_LIMIT: Duration = Duration::from_micros(100);

/// The default spin limit on this machine: zero on one processor.
pub(crate) fn default_spin_limit() -> Duration {
    match thread::available_parallelism().map(NonZeroUsize::get) {
        // While this side spins, the peer cannot run.
        Ok(1) => Duration::ZERO,
        _ => DEFAULT_SPIN_LIMIT,
    }
}

/// The offset of preadv2(2) and pwritev2(2) for a file without positions.
pub(crate) const NO_OFFSET: u64 = u64::MAX;

/// The end of a call that did not succeed.
#[derive(Debug)]
pub(crate) enum Failure {
    TimedOut(Duration),
    Call(Errno),
}

/// Repeats a read(2) or write(2) until it succeeds, fails or times out. `sleep` waits until another attempt may help.
pub(crate) fn within<T>(
    wait: Wait,
    mut attempt: impl FnMut(ReadWriteFlags) -> Result<T, Errno>,
    mut sleep: impl FnMut(Duration) -> Result<(), Errno>,
) -> Result<T, Failure> {
    let (flags, limit) = match wait {
        Wait::Forever => (ReadWriteFlags::empty(), None),
        Wait::Never => (ReadWriteFlags::NOWAIT, None),
        Wait::For(limit) => (ReadWriteFlags::NOWAIT, Some(limit)),
    };
    let began = Instant::now();
    loop {
        // The last attempt is after the timeout.
        let left = limit.map(|limit| limit.saturating_sub(began.elapsed()));
        match (attempt(flags), left, limit) {
            (Err(Errno::INTR), ..) => {}
            (Err(Errno::AGAIN), Some(Duration::ZERO), Some(limit)) => {
                return Err(Failure::TimedOut(limit));
            }
            (Err(Errno::AGAIN), Some(left), _) => sleep(left).map_err(Failure::Call)?,
            (other, ..) => return other.map_err(Failure::Call),
        }
    }
}

/// Waits until the descriptor is readable or has ended. Returns early after a signal.
pub(crate) fn wait_readable(fd: BorrowedFd<'_>, time: Duration) -> Result<(), Errno> {
    // A time that no timespec can hold is no limit.
    let time = Timespec::try_from(time).ok();
    ignore_interrupt(poll(&mut [PollFd::new(&fd, PollFlags::IN)], time.as_ref()).map(drop))
}

/// Waits until a sender may have room. A descriptor is writable if the largest message fits into the ring; a subscriber may be full
/// nevertheless. Hence the edge-triggered wait: after the first call it returns only after a wake-up.
pub(crate) struct RoomWait<'a> {
    fd: BorrowedFd<'a>,
    epoll: Option<OwnedFd>,
}

impl<'a> RoomWait<'a> {
    pub fn new(fd: BorrowedFd<'a>) -> Self {
        Self { fd, epoll: None }
    }

    pub fn sleep(&mut self, time: Duration) -> Result<(), Errno> {
        let epoll = match self.epoll.take() {
            Some(epoll) => epoll,
            None => watch(self.fd)?,
        };
        let time = Timespec::try_from(time).ok();
        let mut events = Vec::with_capacity(1);
        let waited = epoll::wait(&epoll, spare_capacity(&mut events), time.as_ref()).map(drop);
        self.epoll = Some(epoll);
        ignore_interrupt(waited)
    }
}

fn watch(fd: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let events = epoll::EventFlags::OUT | epoll::EventFlags::ET;
    epoll::add(&epoll, fd, epoll::EventData::new_u64(0), events)?;
    Ok(epoll)
}

fn ignore_interrupt(waited: Result<(), Errno>) -> Result<(), Errno> {
    match waited {
        Err(Errno::INTR) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    const SHORT: Duration = Duration::from_millis(5);

    #[test]
    fn a_call_is_repeated_after_a_signal_and_after_a_sleep() {
        let mut results = [Err(Errno::INTR), Err(Errno::AGAIN), Ok(7)].into_iter();
        let mut slept = 0;
        let attempt = |_| results.next().unwrap();
        let outcome = within(Wait::For(Duration::MAX), attempt, |_| {
            slept += 1;
            Ok(())
        });
        assert!(matches!(outcome, Ok(7)));
        assert_eq!(slept, 1);
    }

    #[test]
    fn a_call_ends_by_timeout_or_at_once() {
        let sleep = |time| {
            std::thread::sleep(time);
            Ok(())
        };
        let full = |_| Err::<(), _>(Errno::AGAIN);
        let outcome = within(Wait::For(SHORT), full, sleep);
        assert!(matches!(outcome, Err(Failure::TimedOut(SHORT))));
        let outcome = within(Wait::Never, full, |_| unreachable!());
        assert!(matches!(outcome, Err(Failure::Call(Errno::AGAIN))));
        let outcome = within(Wait::For(SHORT), |_| Err::<(), _>(Errno::PIPE), sleep);
        assert!(matches!(outcome, Err(Failure::Call(Errno::PIPE))));
    }

    #[test]
    fn a_wait_for_room_returns_once_without_a_wake_up() {
        let (socket, _peer) = UnixStream::pair().unwrap();
        let mut room = RoomWait::new(socket.as_fd());
        let began = Instant::now();
        room.sleep(Duration::MAX).unwrap();
        assert!(began.elapsed() < Duration::from_secs(60));
        room.sleep(SHORT).unwrap();
        assert!(began.elapsed() >= SHORT);
    }
}
