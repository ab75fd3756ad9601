// SPDX-License-Identifier: MIT OR Apache-2.0
//! /dev/sluice/pipe. Each cgroup has its own pipe, so each link uses its own cgroup: both processes enter it, open the
//! node, and may then move, because an endpoint stays with the pipe on which it was opened. There are two variants:
//! with the adaptive spinning of the module, and with spinning turned off.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::rc::Rc;

use anyhow::{Context, Result};
use nix::errno::Errno;
use sluice_abi::{PIPE_SET_SPIN, Setting};
use sluice_testkit::cgroup::{Cgroup, Tree};
use sluice_testkit::module::PIPE_NODE;

use super::stream::{StreamReceiver, StreamSender};
use super::{Link, Mechanism, Receiver, Sender, Waiting};

pub struct SluicePipe {
    tree: Rc<Tree>,
    waiting: Waiting,
}

impl SluicePipe {
    pub fn new(tree: Rc<Tree>, waiting: Waiting) -> Self {
        Self { tree, waiting }
    }

    pub fn is_available() -> bool {
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
            cgroup: self.tree.create_cgroup()?,
            waiting: self.waiting,
        }))
    }

    fn shared_links(&self, users: usize, _size: usize) -> Result<Option<Vec<Box<dyn Link>>>> {
        let channel = InCgroup {
            cgroup: self.tree.create_cgroup()?,
            waiting: self.waiting,
        };
        let link = |_| Box::new(channel.clone()) as Box<dyn Link>;
        Ok(Some((0..users).map(link).collect()))
    }

    fn is_opened_by_name(&self) -> bool {
        true
    }

    fn links_by_name(&self, pairs: usize, size: usize) -> Result<Vec<Box<dyn Link>>> {
        (0..pairs).map(|_| self.link(size)).collect()
    }
}

#[derive(Clone)]
struct InCgroup {
    cgroup: Cgroup,
    waiting: Waiting,
}

impl InCgroup {
    fn open(&self, options: &mut OpenOptions) -> Result<File> {
        self.cgroup.enter()?;
        let file = options.open(PIPE_NODE).with_context(|| format!(
            "cannot open {PIPE_NODE}; check that the module is loaded and cgroup v2 is mounted; see 'dmesg | tail'"
        ))?;
        if self.waiting == Waiting::Sleep {
            disable_spinning(&file)?;
        }
        Ok(file)
    }
}

fn disable_spinning(file: &File) -> Result<()> {
    let mut setting = Setting::new(0);
    // SAFETY: the kernel reads and writes one Setting, whose size is in the command.
    let returned = unsafe { libc::ioctl(file.as_raw_fd(), PIPE_SET_SPIN, &raw mut setting) };
    Errno::result(returned).with_context(|| {
        format!("cannot turn off spinning on {PIPE_NODE}; check the version of the module")
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
