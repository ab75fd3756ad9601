// SPDX-License-Identifier: MIT OR Apache-2.0
//! A ring in shared memory and futex(2): the least that two processes can do that sleep. They sleep only
//! on an empty or a full ring, wake only who sleeps, and make no system call otherwise.

use std::sync::atomic::AtomicU32;

use anyhow::{Context, Result};
use nix::errno::Errno;

use super::shared_ring::Ring;
use super::sleeping::{AWAITED, Bell, Sleeping};
use super::{Link, Mechanism, Task, Waiting, no_file};

pub struct FutexShm;

impl Mechanism for FutexShm {
    fn name(&self) -> &'static str {
        "futex-shm"
    }

    fn waiting(&self) -> Waiting {
        Waiting::Sleep
    }

    fn obstacle(&self, task: &Task) -> Option<String> {
        no_file(task)
    }

    fn link(&self, size: usize) -> Result<Box<dyn Link>> {
        Ok(Box::new(Ring::new(size, Sleeping(Futex), Sleeping(Futex))?))
    }
}

struct Futex;

impl Bell for Futex {
    fn sleep(&self, awaited: &AtomicU32) -> Result<()> {
        let forever = std::ptr::null::<libc::timespec>();
        // SAFETY: the kernel reads the word, which lives as long as the borrow, and no timeout.
        let returned =
            unsafe { libc::syscall(libc::SYS_futex, awaited, libc::FUTEX_WAIT, AWAITED, forever) };
        match Errno::result(returned) {
            Ok(_) | Err(Errno::EAGAIN | Errno::EINTR) => Ok(()),
            Err(error) => Err(error).context("cannot sleep on a futex"),
        }
    }

    fn ring(&self, awaited: &AtomicU32) -> Result<()> {
        let sleepers = 1;
        // SAFETY: the kernel only takes the address of the word.
        let returned =
            unsafe { libc::syscall(libc::SYS_futex, awaited, libc::FUTEX_WAKE, sleepers) };
        Errno::result(returned).context("cannot wake who sleeps on a futex")?;
        Ok(())
    }
}
