// SPDX-License-Identifier: MIT OR Apache-2.0
//! pipe(2), the reference.

use std::os::fd::OwnedFd;

use anyhow::{Context, Result};
use nix::fcntl::OFlag;
use nix::unistd::pipe2;

use super::{Batching, Link, Mechanism, stream};
use crate::harness::waiting::Waiting;

pub fn mechanism() -> Mechanism {
    Mechanism {
        // The reference of batches, too.
        batching: Some(Batching::OneByOne),
        shared_links: Some(Box::new(shared_links)),
        ..Mechanism::new("pipe", Waiting::Sleep, |_| {
            let (receiver, sender) = pipe()?;
            Ok(stream::link(receiver, sender))
        })
    }
}

/// Links that share one pipe.
pub fn shared_links(users: usize) -> Result<Vec<Link>> {
    let (receiver, sender) = pipe()?;
    let link = |_| Ok(stream::link(receiver.try_clone()?, sender.try_clone()?));
    (0..users).map(link).collect()
}

pub fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    pipe2(OFlag::O_CLOEXEC).context("cannot create a pipe")
}
