// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ioctls of /dev/sluice/ctl for one scope, without any other work that would be measured.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::rc::Rc;

use anyhow::{Context, Result};
use nix::errno::Errno;
use sluice_abi::{
    CTL_INFO, CTL_LIST, CTL_OPEN, CTL_UNLINK, ChannelInfo, Info, List, OPEN_CREATE, OPEN_EXCL,
    OPEN_PERSIST, OPEN_READ, OPEN_WRITE, Open, Unlink,
};
use sluice_testkit::clock;

const NODE: &str = "/dev/sluice/ctl";
/// The smallest capacity, so that thousands of channels stay below the limit of bytes.
const CAPACITY: u64 = 4096;

pub fn open_node() -> Result<Rc<File>> {
    let node = File::open(NODE);
    let node = node.with_context(|| {
        format!("cannot open {NODE}; check that a module of this version is loaded")
    })?;
    Ok(Rc::new(node))
}

pub struct Scope {
    pub node: Rc<File>,
    /// The directory of its cgroup.
    pub directory: File,
}

impl Scope {
    /// Creates a persistent channel; returns an endpoint of it.
    pub fn create(&self, name: &str) -> Result<File> {
        let file = self.open(name, OPEN_CREATE | OPEN_EXCL | OPEN_PERSIST);
        file.with_context(|| format!("cannot create {name}"))
    }

    pub fn attach(&self, name: &str) -> Result<File> {
        let file = self.open(name, 0);
        file.with_context(|| format!("cannot attach to {name}"))
    }

    /// Opens for reading and writing, which does not wait for a peer.
    fn open(&self, name: &str, flags: u32) -> nix::Result<File> {
        let mut open = Open::new(name, OPEN_READ | OPEN_WRITE | flags);
        open.scope_fd = self.fd();
        open.capacity = CAPACITY;
        let fd = self.call(CTL_OPEN, &mut open)?;
        // SAFETY: the kernel has just returned this descriptor.
        Ok(unsafe { File::from_raw_fd(fd) })
    }

    pub fn unlink(&self, name: &str) -> Result<()> {
        let unlinked = self.call(CTL_UNLINK, &mut Unlink::new(self.fd(), name));
        unlinked.with_context(|| format!("cannot unlink {name}"))?;
        Ok(())
    }

    pub fn info(&self, name: &str) -> Result<ChannelInfo> {
        let mut info = ChannelInfo::EMPTY;
        let found = self.call(CTL_INFO, &mut Info::new(self.fd(), name, &mut info));
        found.with_context(|| format!("cannot get info of {name}"))?;
        Ok(info)
    }

    /// Lists the channels after `after`, or the first ones; returns their number.
    pub fn page(&self, after: Option<&ChannelInfo>, entries: &mut [ChannelInfo]) -> Result<usize> {
        let mut list = List::new(self.fd(), entries.as_mut_ptr(), entries.len());
        if let Some(after) = after {
            (list.kind, list.name) = (after.kind, after.name);
        }
        let listed = self.call(CTL_LIST, &mut list);
        listed.context("cannot list the channels")?;
        Ok(list.count as usize)
    }

    fn fd(&self) -> i32 {
        self.directory.as_raw_fd()
    }

    fn call<T>(&self, command: libc::Ioctl, structure: &mut T) -> nix::Result<i32> {
        // SAFETY: every caller passes the structure of its command, and the kernel writes no more entries than the
        // count in it.
        Errno::result(unsafe { libc::ioctl(self.node.as_raw_fd(), command, &raw mut *structure) })
    }
}

pub fn timed<T>(call: impl FnOnce() -> Result<T>) -> Result<(u64, T)> {
    let before = clock::now_ns();
    let result = call();
    Ok((clock::now_ns() - before, result?))
}
