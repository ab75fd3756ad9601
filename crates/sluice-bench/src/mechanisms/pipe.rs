// SPDX-License-Identifier: MIT OR Apache-2.0
//! pipe(2), what everyone has.

use std::os::fd::OwnedFd;

use anyhow::{Context, Result};
use nix::fcntl::OFlag;
use nix::unistd::pipe2;

use super::stream::{StreamReceiver, StreamSender};
use super::{Link, Mechanism, Receiver, Sender, Shape, Task, Waiting};

pub struct Pipe;

impl Mechanism for Pipe {
    fn name(&self) -> &'static str {
        "pipe"
    }

    fn waiting(&self) -> Waiting {
        Waiting::Sleep
    }

    fn obstacle(&self, task: &Task) -> Option<String> {
        (task.shape == Shape::Strangers)
            .then(|| "it has no name by which strangers could meet".into())
    }

    fn link(&self, _size: usize) -> Result<Box<dyn Link>> {
        let (output, input) = pipe2(OFlag::O_CLOEXEC).context("cannot make a pipe")?;
        Ok(Box::new(Ends { output, input }))
    }
}

struct Ends {
    output: OwnedFd,
    input: OwnedFd,
}

impl Link for Ends {
    fn sender(self: Box<Self>) -> Result<Box<dyn Sender>> {
        Ok(Box::new(StreamSender(self.input.into())))
    }

    fn receiver(self: Box<Self>) -> Result<Box<dyn Receiver>> {
        Ok(Box::new(StreamReceiver(self.output.into())))
    }
}
