// SPDX-License-Identifier: MIT OR Apache-2.0
//! pipe(2), the reference.

use anyhow::{Context, Result};
use nix::fcntl::OFlag;
use nix::unistd::pipe2;

use super::stream::StreamLink;
use super::{Batching, Link, Mechanism, Waiting};

pub struct Pipe;

impl Mechanism for Pipe {
    fn name(&self) -> &'static str {
        "pipe"
    }

    fn waiting(&self) -> Waiting {
        Waiting::Sleep
    }

    /// The reference of batches, too.
    fn batching(&self) -> Option<Batching> {
        Some(Batching::OneByOne)
    }

    fn link(&self, _size: usize) -> Result<Box<dyn Link>> {
        Ok(Box::new(pipe()?))
    }

    fn shared_links(&self, users: usize, _size: usize) -> Result<Option<Vec<Box<dyn Link>>>> {
        let pipe = pipe()?;
        let link = |_| Ok(Box::new(pipe.try_clone()?) as Box<dyn Link>);
        (0..users).map(link).collect::<Result<_>>().map(Some)
    }
}

fn pipe() -> Result<StreamLink> {
    let (receiver, sender) = pipe2(OFlag::O_CLOEXEC).context("cannot create a pipe")?;
    Ok(StreamLink {
        sender: sender.into(),
        receiver: receiver.into(),
    })
}
