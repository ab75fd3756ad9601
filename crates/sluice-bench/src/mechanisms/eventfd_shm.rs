// SPDX-License-Identifier: MIT OR Apache-2.0
//! A ring in shared memory and two eventfds: one tells of messages, the other of room. They are written as is usual with
//! such rings (virtio's, for one): only when the other side has said that it may sleep, and not at each message.

use std::sync::atomic::AtomicU32;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::shared_ring::Ring;
use super::sleeping::{Bell, Sleeping};
use super::{Link, Mechanism, Task, Waiting, no_file};

pub struct EventfdShm;

impl Mechanism for EventfdShm {
    fn name(&self) -> &'static str {
        "eventfd-shm"
    }

    fn waiting(&self) -> Waiting {
        Waiting::Sleep
    }

    fn obstacle(&self, task: &Task) -> Option<String> {
        no_file(task)
    }

    fn link(&self, size: usize) -> Result<Box<dyn Link>> {
        Ok(Box::new(Ring::new(size, Event::new()?, Event::new()?)?))
    }
}

struct Event(EventFd);

impl Event {
    fn new() -> Result<Sleeping<Self>> {
        let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC).context("cannot make an eventfd")?;
        Ok(Sleeping(Self(event)))
    }
}

/// What was written stays until it is read, so a sleep that begins after it was rung for ends at once.
impl Bell for Event {
    fn sleep(&self, _awaited: &AtomicU32) -> Result<()> {
        match self.0.read() {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error).context("cannot read an eventfd"),
        }
    }

    fn ring(&self, _awaited: &AtomicU32) -> Result<()> {
        self.0.write(1).context("cannot write an eventfd")?;
        Ok(())
    }
}
