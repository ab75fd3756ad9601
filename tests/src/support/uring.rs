// SPDX-License-Identifier: MIT OR Apache-2.0
//! io_uring with single requests.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use io_uring::{IoUring, opcode, squeue, types};
use nix::errno::Errno;

use super::check::{expect, skip};
use super::time::{Deadline, wait_grace_period};

/// The name of a request, in a test with one at a time.
pub const REQUEST: u64 = 1;
const CANCEL: u64 = 2;

pub struct Ring(IoUring);

impl Ring {
    pub fn new() -> Result<Self> {
        Self::build(&IoUring::builder())
    }

    /// A ring whose requests a thread of the kernel submits.
    pub fn with_kernel_thread() -> Result<Self> {
        Self::build(IoUring::builder().setup_sqpoll(100))
    }

    fn build(builder: &io_uring::Builder) -> Result<Self> {
        match builder.build(8) {
            Ok(ring) => Ok(Ring(ring)),
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => Err(skip(
                "io_uring is switched off here (kernel.io_uring_disabled)",
            )),
            Err(error) => Err(error).context("setting up a ring"),
        }
    }

    /// A ring whose request `REQUEST` waits.
    pub fn pending(entry: squeue::Entry) -> Result<Self> {
        let mut ring = Ring::new()?;
        ring.submit(entry, REQUEST)?;
        ring.expect_pending()?;
        Ok(ring)
    }

    /// Registers this memory as the only buffer; the kernel holds its pages.
    pub fn register(&self, start: *mut u8, len: usize) -> nix::Result<()> {
        let buffer = libc::iovec {
            iov_base: start.cast(),
            iov_len: len,
        };
        // SAFETY: the kernel checks the range, and callers pass memory that no Rust reference covers.
        let registered = unsafe { self.0.submitter().register_buffers(&[buffer]) };
        registered.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(0)))
    }

    pub fn submit(&mut self, entry: squeue::Entry, name: u64) -> Result<()> {
        // SAFETY: each test keeps the buffers of its requests until they are complete or the ring is closed.
        unsafe { self.0.submission().push(&entry.user_data(name)) }.context("queueing")?;
        self.0.submit().context("submitting")?;
        Ok(())
    }

    /// The result of the request with this number, which must be the next to complete.
    pub fn result(&mut self, name: u64) -> Result<Result<i32, Errno>> {
        let deadline = Deadline::for_event();
        loop {
            if let Some(entry) = self.0.completion().next() {
                expect("which request completed", entry.user_data(), name)?;
                let result = entry.result();
                return Ok(if result < 0 {
                    Err(Errno::from_raw(-result))
                } else {
                    Ok(result)
                });
            }
            if deadline.passed() {
                bail!(
                    "request {name} did not complete within {:?}",
                    deadline.span()
                );
            }
            // Entering the ring also runs deferred work of this thread.
            self.0.submit().context("entering the ring")?;
            sleep(Duration::from_millis(1));
        }
    }

    /// As `result`, but sleeps in io_uring_enter(2) until a request is complete, however often it is interrupted.
    pub fn wait_result(&mut self, name: u64) -> Result<Result<i32, Errno>> {
        while let Err(error) = self.0.submit_and_wait(1) {
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error).context("waiting in the ring");
            }
        }
        self.result(name)
    }

    pub fn expect_pending(&mut self) -> Result<()> {
        wait_grace_period();
        self.0.submit().context("entering the ring")?;
        match self.0.completion().next() {
            None => Ok(()),
            Some(entry) => bail!(
                "request {} completed with {}; expected it to stay pending",
                entry.user_data(),
                entry.result()
            ),
        }
    }

    /// Cancels the request; both the request and the cancellation must report it.
    pub fn cancel(&mut self) -> Result<()> {
        self.submit(opcode::AsyncCancel::new(REQUEST).build(), CANCEL)?;
        let mut seen = Vec::new();
        let deadline = Deadline::for_event();
        while seen.len() < 2 {
            let next = self.0.completion().next();
            match next {
                Some(entry) => seen.push((entry.user_data(), entry.result())),
                None if deadline.passed() => {
                    bail!("after the cancellation only {seen:?} completed")
                }
                None => {
                    self.0.submit().context("entering the ring")?;
                    sleep(Duration::from_millis(1));
                }
            }
        }
        seen.sort_unstable();
        expect(
            "the request and the cancellation",
            seen,
            vec![(REQUEST, -libc::ECANCELED), (CANCEL, 0)],
        )
    }
}

pub fn number(fd: &impl AsFd) -> types::Fd {
    types::Fd(fd.as_fd().as_raw_fd())
}

pub fn read_into(fd: &impl AsFd, buffer: &mut [u8]) -> squeue::Entry {
    opcode::Read::new(number(fd), buffer.as_mut_ptr(), buffer.len() as u32).build()
}

pub fn poll_for(fd: &impl AsFd, events: libc::c_short) -> squeue::Entry {
    opcode::PollAdd::new(number(fd), events as u32).build()
}

/// Opens a file; the path has to outlive the request.
pub fn open_at(path: &CStr, flags: libc::c_int) -> squeue::Entry {
    opcode::OpenAt::new(types::Fd(libc::AT_FDCWD), path.as_ptr())
        .flags(flags | libc::O_CLOEXEC)
        .build()
}
