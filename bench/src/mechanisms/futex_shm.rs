// SPDX-License-Identifier: MIT OR Apache-2.0
//! A ring in shared memory and futex(2): the minimal overhead of two sleeping processes. They sleep only on an empty or
//! full ring, wake only a sleeping peer, and otherwise make no system call.

use std::sync::atomic::AtomicU32;

use anyhow::{Context, Result};
use nix::errno::Errno;

use super::mechanism::no_file;
use super::shared_ring::{self, Ring};
use super::sleeping::{Sleeping, WAITING, Waker};
use super::{Link, Mechanism};
use crate::harness::waiting::Waiting;

pub fn mechanism() -> Mechanism {
    Mechanism {
        in_flight: Box::new(shared_ring::slots),
        unsupported_reason: Box::new(no_file),
        ..Mechanism::new("futex-shm", Waiting::Sleep, link)
    }
}

pub fn link(size: usize) -> Result<Link> {
    Ring::link(size, Sleeping(Futex), Sleeping(Futex))
}

struct Futex;

impl Waker for Futex {
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
