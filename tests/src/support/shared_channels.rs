// SPDX-License-Identifier: MIT OR Apache-2.0
//! Channels that a slow process and another one use at the same time, all in non-blocking mode.

use std::os::fd::OwnedFd;

use anyhow::{Context as _, Result};
use nix::errno::Errno;

use super::ctl::{CREATE, Ctl, NONBLOCK, Open};

/// An endpoint of the channel of this kind, which is created if necessary.
pub fn open_shared(
    ctl: &Ctl,
    kind: u32,
    flags: u32,
    params: u64,
    capacity: u64,
) -> Result<OwnedFd> {
    let opened = ctl.open(Open {
        kind,
        params,
        capacity,
        ..Open::new("shared", flags | CREATE | NONBLOCK)
    });
    opened.with_context(|| format!("opening a channel of kind {kind}"))
}

/// A full or an empty channel is no error here.
pub fn unless_blocked(result: nix::Result<usize>) -> nix::Result<Option<usize>> {
    match result {
        Err(Errno::EAGAIN) => Ok(None),
        other => other.map(Some),
    }
}
