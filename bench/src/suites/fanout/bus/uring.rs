// SPDX-License-Identifier: MIT OR Apache-2.0
//! Both ends of a bus through io_uring: one request in flight, submitted and completed by one call, in a ring with a
//! single issuer that runs its own completions.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use anyhow::{Context, Result, ensure};
use io_uring::{IoUring, opcode, squeue, types};

use crate::suites::fanout::channel::{End, Visit};
use crate::suites::fanout::conditions::Conditions;

/// The position argument of a file without positions.
const CURRENT: u64 = u64::MAX;

pub fn ring() -> Result<IoUring> {
    IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .build(2)
        .context(
            "cannot create an io_uring; check 'sysctl kernel.io_uring_disabled' (needs Linux 6.1)",
        )
}

/// # Safety
/// The memory of the request is valid until this returns, which is after its completion.
unsafe fn complete(ring: &mut IoUring, request: &squeue::Entry) -> Result<io::Result<usize>> {
    // SAFETY: the caller says so; the only request is awaited below.
    unsafe { ring.submission().push(request) }?;
    ring.submit_and_wait(1).context("io_uring_enter")?;
    let result = ring.completion().next().context("no completion")?.result();
    Ok(usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result)))
}

pub fn sender(endpoint: File) -> Result<End> {
    let mut ring = ring()?;
    End::sender(move |message| {
        let fd = types::Fd(endpoint.as_raw_fd());
        let length = u32::try_from(message.len())?;
        let write = opcode::Write::new(fd, message.as_ptr(), length).offset(CURRENT);
        // SAFETY: the message outlives the call.
        let sent = unsafe { complete(&mut ring, &write.build()) }?;
        let sent = sent.context("cannot send a message")?;
        ensure!(sent == message.len(), "a part of a message was sent");
        Ok(())
    })
}

pub fn receiver(endpoint: File, conditions: &Conditions) -> Result<End> {
    let mut ring = ring()?;
    let mut message = vec![0; conditions.size];
    let length = u32::try_from(message.len())?;
    // io_uring waits on a file with O_NONBLOCK, too, unless the request says otherwise.
    let flags = if conditions.blocks() {
        0
    } else {
        libc::RWF_NOWAIT
    };
    End::receiver(move |visit: Visit| {
        let fd = types::Fd(endpoint.as_raw_fd());
        let read = opcode::Read::new(fd, message.as_mut_ptr(), length)
            .offset(CURRENT)
            .rw_flags(flags);
        // SAFETY: the buffer outlives the call, and is not used meanwhile.
        match unsafe { complete(&mut ring, &read.build()) }? {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            read => {
                visit(&message[..read.context("cannot receive a message")?])?;
                Ok(true)
            }
        }
    })
}
