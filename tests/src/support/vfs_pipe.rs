// SPDX-License-Identifier: MIT OR Apache-2.0
//! pipe(2), and splice(2) to and from it.

use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context, Result, ensure};
use nix::fcntl::{FcntlArg, OFlag, SpliceFFlags, fcntl, splice};
use nix::unistd::pipe2;

/// The read end and the write end.
pub fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    pipe2(OFlag::O_CLOEXEC).context("pipe2")
}

/// A pipe with at least this capacity.
pub fn pipe_of_capacity(bytes: usize) -> Result<(OwnedFd, OwnedFd)> {
    let ends = pipe()?;
    let set = fcntl(&ends.1, FcntlArg::F_SETPIPE_SZ(i32::try_from(bytes)?));
    ensure!(
        set.context("F_SETPIPE_SZ")? as usize >= bytes,
        "a pipe has less than {bytes} bytes of capacity"
    );
    Ok(ends)
}

pub fn move_bytes(from: &impl AsFd, to: &impl AsFd, count: usize) -> nix::Result<usize> {
    splice(from, None, to, None, count, SpliceFFlags::empty())
}

/// Moves exactly `count` bytes, in any number of calls.
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

pub fn move_bytes_nonblocking(
    from: &impl AsFd,
    to: &impl AsFd,
    count: usize,
) -> nix::Result<usize> {
    splice(from, None, to, None, count, SpliceFFlags::SPLICE_F_NONBLOCK)
}
