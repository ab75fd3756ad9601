// SPDX-License-Identifier: MIT OR Apache-2.0
//! /dev/sluice/pipe. Each cgroup has one, so each link lives in a cgroup of its own: both processes enter it, open, and may
//! move on, since an endpoint stays with the pipe that it was opened on. It takes part twice: as it comes, which is spinning
//! for as long as the module thinks good, and with that turned off.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context, Result};
use nix::errno::Errno;
use sluice_abi::{PIPE_SET_SPIN, Setting};

use super::stream::{StreamReceiver, StreamSender};
use super::{Link, Mechanism, Receiver, Sender, Waiting};
use crate::harness::cgroup::{self, Tree};
use crate::harness::module::PIPE_NODE;

pub struct SluicePipe {
    tree: Rc<Tree>,
    waiting: Waiting,
}

impl SluicePipe {
    pub fn new(tree: Rc<Tree>, waiting: Waiting) -> Self {
        Self { tree, waiting }
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
        self.waiting
    }

    fn link(&self, _size: usize) -> Result<Box<dyn Link>> {
        Ok(Box::new(InCgroup {
            cgroup: self.tree.fresh()?,
            waiting: self.waiting,
        }))
    }

    fn shared(&self, users: usize, _size: usize) -> Result<Option<Vec<Box<dyn Link>>>> {
        let channel = InCgroup {
            cgroup: self.tree.fresh()?,
            waiting: self.waiting,
        };
        let link = |_| Box::new(channel.clone()) as Box<dyn Link>;
        Ok(Some((0..users).map(link).collect()))
    }

    fn meets_strangers(&self) -> bool {
        true
    }

    fn strangers(&self, pairs: usize, size: usize) -> Result<Vec<Box<dyn Link>>> {
        (0..pairs).map(|_| self.link(size)).collect()
    }
}

#[derive(Clone)]
struct InCgroup {
    cgroup: PathBuf,
    waiting: Waiting,
}

impl InCgroup {
    fn open(&self, options: &mut OpenOptions) -> Result<File> {
        cgroup::enter(&self.cgroup)?;
        let file = options.open(PIPE_NODE).with_context(|| format!(
            "cannot open {PIPE_NODE}; is the module loaded and a cgroup v2 hierarchy mounted? 'dmesg | tail' says more"
        ))?;
        if self.waiting == Waiting::Sleep {
            never_spin(&file)?;
        }
        Ok(file)
    }
}

fn never_spin(file: &File) -> Result<()> {
    let mut setting = Setting::new(0);
    // SAFETY: the kernel reads and writes one Setting, whose size it is told.
    let returned = unsafe { libc::ioctl(file.as_raw_fd(), PIPE_SET_SPIN, &raw mut setting) };
    Errno::result(returned).with_context(|| {
        format!("cannot turn off spinning on {PIPE_NODE}; is an old module loaded?")
    })?;
    Ok(())
}

impl Link for InCgroup {
    fn sender(self: Box<Self>) -> Result<Box<dyn Sender>> {
        let file = self.open(File::options().write(true))?;
        Ok(Box::new(StreamSender(file)))
    }

    fn receiver(self: Box<Self>) -> Result<Box<dyn Receiver>> {
        let file = self.open(File::options().read(true))?;
        Ok(Box::new(StreamReceiver(file)))
    }
}
