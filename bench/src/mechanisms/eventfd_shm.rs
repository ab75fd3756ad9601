// SPDX-License-Identifier: MIT OR Apache-2.0
//! A ring in shared memory and two eventfds, one for messages and one for free space. As in virtio, they are written
//! only when the peer has announced that it may sleep, and not for each message.

use std::sync::atomic::AtomicU32;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::Mechanism;
use super::mechanism::no_file;
use super::shared_ring::{self, Ring};
use super::sleeping::{Sleeping, Waker};
use crate::harness::waiting::Waiting;

pub fn mechanism() -> Mechanism {
    Mechanism {
        in_flight: Box::new(shared_ring::slots),
        unsupported_reason: Box::new(no_file),
        ..Mechanism::new("eventfd-shm", Waiting::Sleep, |size| {
            Ring::link(size, Event::new()?, Event::new()?)
        })
    }
}

struct Event(EventFd);

impl Event {
    fn new() -> Result<Sleeping<Self>> {
        let event =
            EventFd::from_flags(EfdFlags::EFD_CLOEXEC).context("cannot create an eventfd")?;
        Ok(Sleeping(Self(event)))
    }
}

/// The count of an eventfd persists until it is read, so a sleep that begins after the wake-up ends at once.
impl Waker for Event {
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
