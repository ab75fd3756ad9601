// SPDX-License-Identifier: MIT OR Apache-2.0
//! /dev/sluice/ctl: any call with any argument.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use anyhow::{Context, Result};

use sluice_abi::SCOPE_SELF;
pub use sluice_abi::{
    ABI, CHANNEL_INFO_SIZE_VER0, CHANNEL_PERSISTENT as PERSISTENT, CTL_FEATURES as FEATURES,
    CTL_INFO as INFO, CTL_LIST as LIST, CTL_OPEN as OPEN, CTL_UNLINK as UNLINK, ChannelInfo,
    FEATURES_SIZE_VER0, Features, Info, KIND_PIPE, LIST_MAX, List, NAME_SIZE,
    OPEN_CREATE as CREATE, OPEN_EXCL as EXCL, OPEN_FLAGS as ALL_FLAGS, OPEN_NONBLOCK as NONBLOCK,
    OPEN_PERSIST as PERSIST, OPEN_READ as READ, OPEN_SIZE_VER0, OPEN_WRITE as WRITE, Open, Unlink,
    padded,
};

use super::check::expect;
use super::ioctl::{raw, raw_with_result};
use super::kernel::expect_nothing_held;

pub const NODE: &str = "/dev/sluice/ctl";

/// As a scope: the caller's own cgroup.
pub const OWN: RawFd = SCOPE_SELF;
pub const BOTH: u32 = READ | WRITE;

/// An open /dev/sluice/ctl.
pub struct Ctl(OwnedFd);

impl Ctl {
    pub fn new() -> Result<Self> {
        let file = File::open(NODE).with_context(|| format!("opening {NODE}"))?;
        Ok(Ctl(file.into()))
    }

    pub fn open(&self, mut request: Open) -> nix::Result<OwnedFd> {
        let fd = raw_with_result(self, OPEN, &mut request)?;
        // SAFETY: the kernel just gave us this descriptor.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// A channel that is not there yet, in the own cgroup; the endpoint works both ways.
    pub fn create(&self, name: impl AsRef<[u8]>) -> nix::Result<OwnedFd> {
        self.open(Open::new(name, BOTH | CREATE | EXCL))
    }

    /// A channel of this scope that stays without an endpoint, and has none.
    pub fn persist(&self, scope_fd: RawFd, name: impl AsRef<[u8]>) -> nix::Result<()> {
        let request = Open::new(name, BOTH | CREATE | EXCL | PERSIST);
        self.open(Open {
            scope_fd,
            ..request
        })
        .map(drop)
    }

    /// A channel that is there, in this scope; the endpoint works both ways.
    pub fn attach(&self, scope_fd: RawFd, name: impl AsRef<[u8]>) -> nix::Result<OwnedFd> {
        let request = Open::new(name, BOTH);
        self.open(Open {
            scope_fd,
            ..request
        })
    }

    pub fn unlink(&self, scope_fd: RawFd, name: impl AsRef<[u8]>) -> nix::Result<()> {
        raw(self, UNLINK, &mut Unlink::new(scope_fd, name))
    }

    pub fn info(&self, scope_fd: RawFd, name: impl AsRef<[u8]>) -> nix::Result<ChannelInfo> {
        let mut info = ChannelInfo::EMPTY;
        raw(self, INFO, &mut Info::new(scope_fd, name, &mut info))?;
        Ok(info)
    }

    /// Up to `count` channels: the first ones, or those after `after`.
    pub fn page(
        &self,
        scope_fd: RawFd,
        after: Option<&[u8]>,
        count: usize,
    ) -> nix::Result<Vec<ChannelInfo>> {
        let mut entries = vec![ChannelInfo::EMPTY; count];
        let mut list = List::new(scope_fd, entries.as_mut_ptr(), count);
        if let Some(name) = after {
            list.kind = KIND_PIPE;
            list.name = padded(name);
        }
        raw(self, LIST, &mut list)?;
        entries.truncate(list.count as usize);
        Ok(entries)
    }

    /// All names of a scope, page by page.
    pub fn names(&self, scope_fd: RawFd) -> nix::Result<Vec<Vec<u8>>> {
        let mut names: Vec<Vec<u8>> = Vec::new();
        loop {
            let page = self.page(scope_fd, names.last().map(Vec::as_slice), LIST_MAX)?;
            names.extend(page.iter().map(|channel| channel.name().to_vec()));
            if page.len() < LIST_MAX {
                return Ok(names);
            }
        }
    }
}

impl From<OwnedFd> for Ctl {
    fn from(node: OwnedFd) -> Self {
        Ctl(node)
    }
}

impl AsFd for Ctl {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Fails unless the own cgroup has no name, and the module nothing at all.
pub fn expect_no_channel(ctl: &Ctl) -> Result<()> {
    expect("names that are left", ctl.names(OWN), Ok(vec![]))?;
    expect_nothing_held()
}
