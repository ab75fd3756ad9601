// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's own pipes, pipe(2), and splice(2) to and from them.

use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context, Result, ensure};
use nix::fcntl::{FcntlArg, OFlag, SpliceFFlags, fcntl, splice};
use nix::unistd::pipe2;

/// Its reading end, and its writing end.
pub fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    pipe2(OFlag::O_CLOEXEC).context("pipe2")
}

/// A pipe with room for as many bytes in whole pages.
pub fn pipe_of_capacity(bytes: usize) -> Result<(OwnedFd, OwnedFd)> {
    let ends = pipe()?;
    let set = fcntl(&ends.1, FcntlArg::F_SETPIPE_SZ(i32::try_from(bytes)?));
    ensure!(
        set.context("F_SETPIPE_SZ")? as usize >= bytes,
        "a pipe of {bytes} bytes has become smaller"
    );
    Ok(ends)
}

pub fn move_bytes(from: &impl AsFd, to: &impl AsFd, count: usize) -> nix::Result<usize> {
    splice(from, None, to, None, count, SpliceFFlags::empty())
}

/// Moves exactly `count` bytes, in as many calls as it takes.
pub fn move_all(from: &impl AsFd, to: &impl AsFd, count: usize) -> Result<()> {
    let mut left = count;
    while left > 0 {
        let moved = move_bytes(from, to, left).context("splice")?;
        ensure!(
            moved > 0,
            "the stream ended {left} bytes before its {count}"
        );
        left -= moved;
    }
    Ok(())
}

pub fn move_bytes_now(from: &impl AsFd, to: &impl AsFd, count: usize) -> nix::Result<usize> {
    splice(from, None, to, None, count, SpliceFFlags::SPLICE_F_NONBLOCK)
}
