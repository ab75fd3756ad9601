// SPDX-License-Identifier: MIT OR Apache-2.0
//! Both ends of a bus through io_uring: one request in flight, submitted and completed by one call, in a ring with a
//! single issuer that runs its own completions.

use std::os::fd::AsRawFd;

use anyhow::{Context, Result, ensure};
use io_uring::{IoUring, opcode, squeue, types};

use super::bus::{self, Endpoint};
use super::channel::{Receiver, Resources, Sender, Shape};
use crate::harness::rounds::Skipped;

/// The position argument of a file without positions.
const CURRENT: u64 = u64::MAX;

fn ring() -> Result<IoUring> {
    IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .build(2)
        .context(
            "cannot create an io_uring; check 'sysctl kernel.io_uring_disabled' (needs Linux 6.1)",
        )
}

pub fn unavailable(resources: &Resources) -> Option<Skipped> {
    let without_ring = || ring().err();
    bus::unavailable(resources).or_else(|| {
        without_ring().map(|error| Skipped::unavailable("sluice-bus-uring", format!("{error:#}")))
    })
}

/// # Safety
/// The memory of the request is valid until this returns, which is after its completion.
unsafe fn complete(ring: &mut IoUring, request: &squeue::Entry) -> Result<i32> {
    // SAFETY: the caller says so; the only request is awaited below.
    unsafe { ring.submission().push(request) }?;
    ring.submit_and_wait(1).context("io_uring_enter")?;
    Ok(ring.completion().next().context("no completion")?.result())
}

fn failure(result: i32) -> anyhow::Error {
    std::io::Error::from_raw_os_error(-result).into()
}

pub struct UringSender {
    ring: IoUring,
    endpoint: Endpoint,
}

impl UringSender {
    pub fn new(endpoint: Endpoint) -> Result<Self> {
        let ring = ring()?;
        Ok(Self { ring, endpoint })
    }
}

impl Sender for UringSender {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        let fd = types::Fd(self.endpoint.0.as_raw_fd());
        let length = u32::try_from(message.len())?;
        let write = opcode::Write::new(fd, message.as_ptr(), length).offset(CURRENT);
        // SAFETY: the message outlives the call.
        let result = unsafe { complete(&mut self.ring, &write.build()) }?;
        if result < 0 {
            return Err(failure(result)).context("cannot send a message");
        }
        ensure!(result as u32 == length, "a part of a message was sent");
        Ok(())
    }
}

pub struct UringReceiver {
    ring: IoUring,
    endpoint: Endpoint,
    message: Vec<u8>,
    /// io_uring waits on a file with O_NONBLOCK, too, unless the request says otherwise.
    flags: i32,
}

impl UringReceiver {
    pub fn new(endpoint: Endpoint, shape: &Shape) -> Result<Self> {
        Ok(Self {
            ring: ring()?,
            endpoint,
            message: vec![0; shape.size],
            flags: if shape.blocking { 0 } else { libc::RWF_NOWAIT },
        })
    }
}

impl Receiver for UringReceiver {
    fn receive(&mut self, visit: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<bool> {
        let fd = types::Fd(self.endpoint.0.as_raw_fd());
        let length = u32::try_from(self.message.len())?;
        let read = opcode::Read::new(fd, self.message.as_mut_ptr(), length)
            .offset(CURRENT)
            .rw_flags(self.flags);
        // SAFETY: the buffer belongs to self, and is not used meanwhile.
        let result = unsafe { complete(&mut self.ring, &read.build()) }?;
        match result {
            0.. => {
                visit(&self.message[..result as usize])?;
                Ok(true)
            }
            result if result == -libc::EAGAIN => Ok(false),
            result => Err(failure(result)).context("cannot receive a message"),
        }
    }
}
