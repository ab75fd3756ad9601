// SPDX-License-Identifier: MIT OR Apache-2.0
//! A socketpair(2) of AF_UNIX stream sockets with the default buffers.

use std::os::unix::net::UnixStream;

use anyhow::Context;

use super::{Mechanism, stream};
use crate::harness::waiting::Waiting;

pub fn mechanism() -> Mechanism {
    Mechanism::new("unix-stream", Waiting::Sleep, |_| {
        let (sender, receiver) = UnixStream::pair().context("cannot create a socket pair")?;
        Ok(stream::link(receiver, sender))
    })
}
