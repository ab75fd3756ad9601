// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rings over memfd: two files, and a Unix socket, which carries the handshake and wake-ups, and hangs up when the peer dies.

pub(super) mod file;
mod handshake;
mod hang_up;
mod memory_limit;
mod setup;
mod socket;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::SendFlags;
use rustix::thread::futex;
use sluice_ring::WakeMethod;
use sluice_ring::sync::AtomicU32;

use super::carrier::Drained;
use crate::shared::device::Slept;
use hang_up::HangUp;

pub use socket::{Listener, Socket};

/// The limit of a sleep in FUTEX_WAIT, where a wake-up is cheap and a hang-up is not detected. After that a side sleeps on
/// the socket.
const FUTEX_SLEEP: Duration = Duration::from_millis(50);

/// The number of attempts of a wake-up that fails for lack of memory, and the pause between them.
const WAKE_TRIALS: u32 = 10;
const WAKE_PAUSE: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(super) struct Memfd {
    socket: OwnedFd,
    hang_up: HangUp,
}

impl Memfd {
    fn new(socket: OwnedFd) -> Self {
        Self {
            socket,
            hang_up: HangUp::new(),
        }
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Checks the socket at most once per clock tick.
    pub fn look(&mut self) -> bool {
        self.hang_up.look(&self.socket)
    }

    pub fn is_hung_up(&self) -> bool {
        self.hang_up.is_known()
    }

    pub fn sleep(
        &self,
        method: WakeMethod,
        wake_seq: &AtomicU32,
        seq: u32,
        limit: Option<Duration>,
    ) -> io::Result<Slept> {
        let slept = match method {
            WakeMethod::Futex => sleep_on_futex(wake_seq, seq, limit),
            WakeMethod::Descriptor => sleep_on_socket(&self.socket, limit),
        };
        Ok(slept?)
    }

    pub fn wake(&self, method: WakeMethod, wake_seq: &AtomicU32) -> bool {
        match method {
            // It fails only for an unmapped address.
            WakeMethod::Futex => futex::wake(wake_seq, futex::Flags::empty(), 1).is_ok(),
            WakeMethod::Descriptor => (0..WAKE_TRIALS).any(|trial| {
                if trial > 0 {
                    thread::sleep(WAKE_PAUSE);
                }
                send_wake_up(&self.socket)
            }),
        }
    }

    /// Reads wake-ups from the socket, up to a limit.
    pub fn drain(&mut self) -> Drained {
        let drained = socket::drain(&self.socket);
        if drained == Drained::HungUp {
            self.hang_up.note();
        }
        drained
    }
}

fn sleep_on_futex(wake_seq: &AtomicU32, seq: u32, limit: Option<Duration>) -> Result<Slept, Errno> {
    let limit = limit.map_or(FUTEX_SLEEP, |limit| limit.min(FUTEX_SLEEP));
    let timeout = futex::Timespec::try_from(limit).map_err(|_| Errno::INVAL)?;
    match futex::wait(wake_seq, futex::Flags::empty(), seq, Some(&timeout)) {
        Ok(()) | Err(Errno::AGAIN | Errno::INTR) => Ok(Slept::Woken),
        Err(Errno::TIMEDOUT) => Ok(Slept::TimedOut),
        Err(errno) => Err(errno),
    }
}

fn sleep_on_socket(socket: &OwnedFd, limit: Option<Duration>) -> Result<Slept, Errno> {
    match socket::poll_readable(socket, limit) {
        Ok(_) | Err(Errno::INTR) => Ok(Slept::Woken),
        Err(errno) => Err(errno),
    }
}

/// Returns false if a retry may help.
fn send_wake_up(socket: &OwnedFd) -> bool {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    // AGAIN: other messages are queued already. PIPE, CONNRESET: the peer is gone.
    !matches!(
        rustix::net::send(socket, &[0], flags),
        Err(Errno::NOBUFS | Errno::NOMEM | Errno::INTR)
    )
}
