// SPDX-License-Identifier: MIT OR Apache-2.0
//! /dev/sluice/pipe. Each cgroup has one, so each link lives in a cgroup of its own: both processes enter it, open, and may
//! move on, since an endpoint stays with the pipe that it was opened on.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context, Result};

use super::stream::{StreamReceiver, StreamSender};
use super::{Link, Mechanism, Receiver, Sender, Waiting};
use crate::harness::cgroup::{self, Tree};
use crate::harness::module::PIPE_NODE;

pub struct SluicePipe {
    tree: Rc<Tree>,
}

impl SluicePipe {
    pub fn new(tree: Rc<Tree>) -> Self {
        Self { tree }
    }

    pub fn is_there() -> bool {
        Path::new(PIPE_NODE).exists()
    }
}

impl Mechanism for SluicePipe {
    fn name(&self) -> &'static str {
        "sluice-pipe"
    }

    fn waiting(&self) -> Waiting {
        Waiting::Sleep
    }

    fn link(&self) -> Result<Box<dyn Link>> {
        Ok(Box::new(InCgroup(self.tree.fresh()?)))
    }
}

struct InCgroup(PathBuf);

impl Link for InCgroup {
    fn sender(self: Box<Self>) -> Result<Box<dyn Sender>> {
        cgroup::enter(&self.0)?;
        let file = File::options().write(true).open(PIPE_NODE);
        Ok(Box::new(StreamSender(
            file.with_context(|| refused("writing"))?,
        )))
    }

    fn receiver(self: Box<Self>) -> Result<Box<dyn Receiver>> {
        cgroup::enter(&self.0)?;
        let file = File::open(PIPE_NODE);
        Ok(Box::new(StreamReceiver(
            file.with_context(|| refused("reading"))?,
        )))
    }
}

fn refused(way: &str) -> String {
    format!(
        "cannot open {PIPE_NODE} for {way}; is the module loaded and a cgroup v2 hierarchy mounted? 'dmesg | tail' says more"
    )
}
