// SPDX-License-Identifier: MIT OR Apache-2.0
//! A socketpair(2) of AF_UNIX stream sockets with the default buffers.

use std::os::fd::OwnedFd;
use std::os::unix::net;

use anyhow::{Context, Result};

use super::stream::StreamLink;
use super::{Link, Mechanism, Waiting};

pub struct UnixStream;

impl Mechanism for UnixStream {
    fn name(&self) -> &'static str {
        "unix-stream"
    }

    fn waiting(&self) -> Waiting {
        Waiting::Sleep
    }

    fn link(&self, _size: usize) -> Result<Box<dyn Link>> {
        let pair = net::UnixStream::pair().context("cannot create a socket pair")?;
        let (sender, receiver): (OwnedFd, OwnedFd) = (pair.0.into(), pair.1.into());
        Ok(Box::new(StreamLink {
            sender: sender.into(),
            receiver: receiver.into(),
        }))
    }
}
