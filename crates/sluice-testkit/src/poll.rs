// SPDX-License-Identifier: MIT OR Apache-2.0
//! poll(2) for one file.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd};

use anyhow::{Context, Result};
use nix::errno::Errno;

use crate::time::Deadline;

/// The events that poll(2) returns after waiting up to `timeout` milliseconds (-1: without a limit), those included that nix does
/// not name.
pub fn wait(fd: &impl AsFd, events: i16, timeout: i32) -> nix::Result<i16> {
    let mut entry = libc::pollfd {
        fd: fd.as_fd().as_raw_fd(),
        events,
        revents: 0,
    };
    // SAFETY: one valid entry, and a count of one.
    Errno::result(unsafe { libc::poll(&mut entry, 1, timeout) })?;
    Ok(entry.revents)
}

/// Whether there was something to read (or the end of it) before the deadline.
pub fn wait_readable(fd: &impl AsFd, deadline: &Deadline) -> Result<bool> {
    loop {
        match wait(fd, libc::POLLIN, deadline.poll_timeout()) {
            Ok(mask) => return Ok(mask != 0),
            Err(Errno::EINTR) => continue,
            Err(error) => return Err(error).context("poll"),
        }
    }
}

/// Reads to the end of a pipe. `wait` returns when it is readable, or fails.
pub fn read_to_end(mut pipe: &File, mut wait: impl FnMut(&File) -> Result<()>) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut piece = vec![0; 65536];
    loop {
        wait(pipe)?;
        match pipe.read(&mut piece).context("cannot read a report")? {
            0 => return Ok(bytes),
            count => bytes.extend_from_slice(&piece[..count]),
        }
    }
}
