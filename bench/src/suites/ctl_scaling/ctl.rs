// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ioctls of /dev/sluice/ctl, without any other work that would be measured.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};

use anyhow::{Context, Result};
use nix::errno::Errno;
use sluice_abi::{
    CTL_INFO, CTL_LIST, CTL_OPEN, CTL_UNLINK, ChannelInfo, Info, List, OPEN_CREATE, OPEN_EXCL,
    OPEN_PERSIST, OPEN_READ, OPEN_WRITE, Open, Unlink,
};

const NODE: &str = "/dev/sluice/ctl";
/// The smallest capacity, so that thousands of channels stay below the limit of bytes.
const CAPACITY: u64 = 4096;

pub struct Ctl(File);

impl Ctl {
    pub fn new() -> Result<Self> {
        let file = File::open(NODE).with_context(|| {
            format!("cannot open {NODE}; check that a module of this version is loaded")
        })?;
        Ok(Self(file))
    }

    /// Creates a persistent channel; returns an endpoint of it.
    pub fn create(&self, scope: &File, name: &str) -> nix::Result<File> {
        self.open(scope, name, OPEN_CREATE | OPEN_EXCL | OPEN_PERSIST)
    }

    pub fn attach(&self, scope: &File, name: &str) -> nix::Result<File> {
        self.open(scope, name, 0)
    }

    /// Opens for reading and writing, which does not wait for a peer.
    fn open(&self, scope: &File, name: &str, flags: u32) -> nix::Result<File> {
        let mut open = Open::new(name, OPEN_READ | OPEN_WRITE | flags);
        open.scope_fd = scope.as_raw_fd();
        open.capacity = CAPACITY;
        let fd = self.call(CTL_OPEN, &mut open)?;
        // SAFETY: the kernel has just returned this descriptor.
        Ok(unsafe { File::from_raw_fd(fd) })
    }

    pub fn unlink(&self, scope: &File, name: &str) -> nix::Result<()> {
        self.call(CTL_UNLINK, &mut Unlink::new(scope.as_raw_fd(), name))?;
        Ok(())
    }

    pub fn info(&self, scope: &File, name: &str) -> nix::Result<ChannelInfo> {
        let mut info = ChannelInfo::EMPTY;
        self.call(CTL_INFO, &mut Info::new(scope.as_raw_fd(), name, &mut info))?;
        Ok(info)
    }

    /// Lists the channels after `after`, or the first ones; returns their number.
    pub fn page(
        &self,
        scope: &File,
        after: Option<&ChannelInfo>,
        entries: &mut [ChannelInfo],
    ) -> nix::Result<usize> {
        let mut list = List::new(scope.as_raw_fd(), entries.as_mut_ptr(), entries.len());
        if let Some(after) = after {
            (list.kind, list.name) = (after.kind, after.name);
        }
        self.call(CTL_LIST, &mut list)?;
        Ok(list.count as usize)
    }

    fn call<T>(&self, command: libc::Ioctl, structure: &mut T) -> nix::Result<i32> {
        // SAFETY: every caller passes the structure of its command, and the kernel writes no more entries than the
        // count in it.
        Errno::result(unsafe {
            libc::ioctl(self.0.as_raw_fd(), command, std::ptr::from_mut(structure))
        })
    }
}
