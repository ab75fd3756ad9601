// SPDX-License-Identifier: MIT OR Apache-2.0
//! A socketpair(2) of AF_UNIX stream sockets, with the default buffers, with larger ones, and polled without blocking.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use anyhow::{Context, Result};
use nix::sys::socket::{setsockopt, sockopt};

use super::mechanism::failure;
use super::{Mechanism, stream};

/// The kernel doubles it, because its own structures count, too. The default is 208 KiB after that.
const LARGE: usize = 1 << 20;

pub fn mechanism() -> Mechanism {
    stream::mechanism("unix-stream", pair)
}

/// Beyond net.core.wmem_max, which only root may exceed.
pub fn with_large_buffer() -> Mechanism {
    Mechanism {
        label: "unix-stream-large (2 MiB)".into(),
        unsupported_reason: Box::new(|_| failure(large_pair())),
        ..stream::mechanism("unix-stream-large", large_pair)
    }
}

pub fn nonblocking() -> Mechanism {
    stream::nonblocking("unix-nonblock", pair)
}

pub fn pair() -> Result<(UnixStream, UnixStream)> {
    UnixStream::pair().context("cannot create a socket pair")
}

/// Only the buffer of the sender counts.
fn large_pair() -> Result<(UnixStream, UnixStream)> {
    let (receiver, sender) = pair()?;
    enlarge_send_buffer(&sender, LARGE)?;
    Ok((receiver, sender))
}

/// Also beyond net.core.wmem_max.
pub fn enlarge_send_buffer(socket: &impl AsFd, bytes: usize) -> Result<()> {
    setsockopt(socket, sockopt::SndBufForce, &bytes)
        .context("cannot enlarge the send buffer of a socket; run as root")
}
