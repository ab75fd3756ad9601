// SPDX-License-Identifier: MIT OR Apache-2.0
//! A ring in shared memory, and IORING_OP_MSG_RING of io_uring(7) to wake the peer: each process waits for a completion
//! in an io_uring of its own, which the other one posts from its own. Used as eventfds are in eventfd_shm.rs, and as
//! the library of io_uring advises: a single issuer that runs its own completions.
//!
//! An io_uring cannot be passed over a socket, so both are created before the fork, and enabled after it.

use std::cell::RefCell;
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::sync::atomic::AtomicU32;

use anyhow::{Context, Result};
use io_uring::{IoUring, opcode, squeue, types};

use super::Mechanism;
use super::mechanism::no_file;
use super::shared_ring::{self, Ring};
use super::sleeping::{Sleeping, Waker};
use crate::harness::waiting::Waiting;

/// Wake-ups that are not read yet. The peer wakes only a process that waits, so there is at most one, and one to spare.
const ENTRIES: u32 = 2;

pub fn mechanism() -> Mechanism {
    Mechanism {
        in_flight: Box::new(shared_ring::slots),
        unsupported_reason: Box::new(|task| {
            no_file(task).or_else(|| new_ring().err().map(|error| format!("{error:#}")))
        }),
        ..Mechanism::new("msg-ring-shm", Waiting::Sleep, |size| {
            let [sender, receiver] = [new_ring()?, new_ring()?];
            let wake = |waiting: &Shared, waking: &Shared| {
                Sleeping(Completion {
                    waiting: Rc::clone(waiting),
                    waking: Rc::clone(waking),
                })
            };
            Ring::link(size, wake(&receiver, &sender), wake(&sender, &receiver))
        })
    }
}

type Shared = Rc<RefCell<IoUring>>;

fn new_ring() -> Result<Shared> {
    let ring = IoUring::builder()
        .setup_r_disabled()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .build(ENTRIES);
    let ring = ring.context(
        "cannot create an io_uring; check 'sysctl kernel.io_uring_disabled' (needs Linux 6.1)",
    )?;
    Ok(Rc::new(RefCell::new(ring)))
}

struct Completion {
    /// Of the process that waits.
    waiting: Shared,
    /// Of the process that wakes it.
    waking: Shared,
}

/// A completion persists until it is read, so a sleep that begins after the wake-up ends at once.
impl Waker for Completion {
    fn begin_waiting(&self) -> Result<()> {
        let ring = self.waiting.borrow();
        let enabled = ring.submitter().register_enable_rings();
        enabled.context("cannot enable an io_uring in this process")
    }

    fn sleep(&self, _waiting: &AtomicU32) -> Result<()> {
        let mut ring = self.waiting.borrow_mut();
        match ring.submit_and_wait(1) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("cannot wait for a completion"),
        }
        for completion in ring.completion() {
            // Negative for a message to the peer that failed.
            if completion.result() < 0 {
                let error = std::io::Error::from_raw_os_error(-completion.result());
                return Err(error).context("cannot post a completion to the peer");
            }
        }
        Ok(())
    }

    fn wake(&self, _waiting: &AtomicU32) -> Result<()> {
        let target = types::Fd(self.waiting.borrow().as_raw_fd());
        let message = opcode::MsgRingData::new(target, 0, 0, None)
            .build()
            .flags(squeue::Flags::SKIP_SUCCESS);
        let mut ring = self.waking.borrow_mut();
        // SAFETY: the request refers to no memory.
        unsafe { ring.submission().push(&message) }.context("an io_uring is full")?;
        ring.submit()
            .context("cannot post a completion to the peer")?;
        Ok(())
    }
}
