// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rings in shared memory by how their sides wait. They spin all the time, the latency of user space without regard to
//! processor time; or they sleep on an empty or full ring, on a futex(2) or an eventfd(2), and wake only a peer that has
//! announced that it may sleep, as in virtio, and otherwise make no system call.

use std::sync::atomic::AtomicU32;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::Mechanism;
use super::shared_ring::{Spin, WAITING, Wait, link, slots};
use crate::harness::waiting::Waiting;

/// `wait` creates what one side waits on.
fn mechanism<W: Wait + 'static>(
    name: &'static str,
    waiting: Waiting,
    wait: impl Fn() -> Result<W> + 'static,
) -> Mechanism {
    Mechanism {
        in_flight: Box::new(slots),
        never_sleeps: !W::SLEEPS,
        ..Mechanism::new(name, waiting, move |size| link(size, wait()?, wait()?))
    }
}

pub fn shm_spin() -> Mechanism {
    mechanism("shm-spin", Waiting::Spin, || Ok(Spin))
}

pub fn futex_shm() -> Mechanism {
    mechanism("futex-shm", Waiting::Sleep, || Ok(Futex))
}

pub fn eventfd_shm() -> Mechanism {
    mechanism("eventfd-shm", Waiting::Sleep, || {
        let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC);
        event.map(Event).context("cannot create an eventfd")
    })
}

struct Futex;

impl Wait for Futex {
    fn sleep(&self, waiting: &AtomicU32) -> Result<()> {
        let forever = std::ptr::null::<libc::timespec>();
        // SAFETY: the kernel reads the word, which outlives the call, and there is no timeout.
        let returned =
            unsafe { libc::syscall(libc::SYS_futex, waiting, libc::FUTEX_WAIT, WAITING, forever) };
        match Errno::result(returned) {
            Ok(_) | Err(Errno::EAGAIN | Errno::EINTR) => Ok(()),
            Err(error) => Err(error).context("cannot sleep on a futex"),
        }
    }

    fn wake(&self, waiting: &AtomicU32) -> Result<()> {
        let max_woken = 1;
        // SAFETY: the kernel uses only the address of the word.
        let returned =
            unsafe { libc::syscall(libc::SYS_futex, waiting, libc::FUTEX_WAKE, max_woken) };
        Errno::result(returned).context("cannot wake a futex")?;
        Ok(())
    }
}

struct Event(EventFd);

/// The count of an eventfd persists until it is read, so a sleep that begins after the wake-up ends at once.
impl Wait for Event {
    fn sleep(&self, _waiting: &AtomicU32) -> Result<()> {
        match self.0.read() {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error).context("cannot read an eventfd"),
        }
    }

    fn wake(&self, _waiting: &AtomicU32) -> Result<()> {
        self.0.write(1).context("cannot write an eventfd")?;
        Ok(())
    }
}
