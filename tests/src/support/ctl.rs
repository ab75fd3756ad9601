// SPDX-License-Identifier: MIT OR Apache-2.0
//! /dev/sluice/ctl: calls with arbitrary arguments.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use anyhow::{Context, Result};

pub use sluice_abi::{
    ABI, CHANNEL_INFO_SIZE_VER0, CHANNEL_PERSISTENT as PERSISTENT, CTL_DESTROY as DESTROY,
    CTL_FEATURES as FEATURES, CTL_INFO as INFO, CTL_LIST as LIST, CTL_OPEN as OPEN,
    CTL_UNLINK as UNLINK, ChannelInfo, ENDPOINT_INFO, FEATURES_SIZE_VER0, Features, Info, KIND_BUS,
    KIND_FEED, KIND_MAP, KIND_PIPE, KIND_RING, LIST_MAX, List, NAME_SIZE,
    OPEN_ANY_OWNER as ANY_OWNER, OPEN_CREATE as CREATE, OPEN_EXCL as EXCL, OPEN_FLAGS as ALL_FLAGS,
    OPEN_NONBLOCK as NONBLOCK, OPEN_PERSIST as PERSIST, OPEN_READ as READ, OPEN_SIZE_VER0,
    OPEN_WRITE as WRITE, Open, Unlink, padded,
};
use sluice_abi::{CTL_USAGE, SCOPE_SELF, Usage};

/// The kinds of the module, as features report them.
pub const KINDS: u64 =
    1 << KIND_PIPE | 1 << KIND_RING | 1 << KIND_FEED | 1 << KIND_BUS | 1 << KIND_MAP;

/// The kinds that users create: feeds belong to kernel modules.
pub const CREATABLE: [u32; 4] = [KIND_PIPE, KIND_RING, KIND_BUS, KIND_MAP];

use super::cgroup::Cgroup;
use super::check::expect;
use super::credentials::become_user_with_groups;
use super::ioctl::{get, raw, raw_with_result};
use super::kernel::expect_no_objects;

pub const NODE: &str = "/dev/sluice/ctl";

/// The scope of the caller's own cgroup.
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
        // SAFETY: a new descriptor, which nothing else owns.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Creates a channel in the own cgroup; the endpoint is read-write.
    pub fn create(&self, name: impl AsRef<[u8]>) -> nix::Result<OwnedFd> {
        self.open(Open::new(name, BOTH | CREATE | EXCL))
    }

    /// Creates a persistent channel in this scope and closes the endpoint.
    pub fn persist(&self, scope_fd: RawFd, name: impl AsRef<[u8]>) -> nix::Result<()> {
        let request = Open::new(name, BOTH | CREATE | EXCL | PERSIST);
        self.open(Open {
            scope_fd,
            ..request
        })
        .map(drop)
    }

    /// Opens a channel of this scope, and creates it if it does not exist; the endpoint is read-write.
    pub fn create_in(&self, scope_fd: RawFd, name: impl AsRef<[u8]>) -> nix::Result<OwnedFd> {
        let request = Open::new(name, BOTH | CREATE);
        self.open(Open {
            scope_fd,
            ..request
        })
    }

    /// Opens an existing channel of this scope; the endpoint is read-write.
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

    pub fn destroy(&self, scope_fd: RawFd, name: impl AsRef<[u8]>) -> nix::Result<()> {
        raw(self, DESTROY, &mut Unlink::new(scope_fd, name))
    }

    /// Calls UNLINK or DESTROY for a channel of this kind.
    pub fn remove(
        &self,
        command: u64,
        kind: u32,
        scope_fd: RawFd,
        name: impl AsRef<[u8]>,
    ) -> nix::Result<()> {
        let mut request = Unlink {
            kind,
            ..Unlink::new(scope_fd, name)
        };
        raw(self, command, &mut request)
    }

    /// Common information, and the state of a channel of this kind.
    pub fn state<S: Default>(
        &self,
        kind: u32,
        scope_fd: RawFd,
        name: impl AsRef<[u8]>,
    ) -> nix::Result<(ChannelInfo, S)> {
        let (mut info, mut state) = (ChannelInfo::EMPTY, S::default());
        let mut request = Info {
            kind,
            state: ptr::from_mut(&mut state) as u64,
            ..Info::new(scope_fd, name, &mut info)
        };
        raw(self, INFO, &mut request)?;
        Ok((info, state))
    }

    pub fn info(&self, scope_fd: RawFd, name: impl AsRef<[u8]>) -> nix::Result<ChannelInfo> {
        self.info_of(KIND_PIPE, scope_fd, name)
    }

    /// Common information about a channel of this kind.
    pub fn info_of(
        &self,
        kind: u32,
        scope_fd: RawFd,
        name: impl AsRef<[u8]>,
    ) -> nix::Result<ChannelInfo> {
        let mut info = ChannelInfo::EMPTY;
        let request = Info::new(scope_fd, name, &mut info);
        raw(self, INFO, &mut Info { kind, ..request })?;
        Ok(info)
    }

    /// Lists up to `count` channels: the first ones, or those after the pipe `after`.
    pub fn page(
        &self,
        scope_fd: RawFd,
        after: Option<&[u8]>,
        count: usize,
    ) -> nix::Result<Vec<ChannelInfo>> {
        let after = after.map(|name| (KIND_PIPE, padded(name)));
        self.page_after(scope_fd, after, count)
    }

    /// `after` is a kind and a name.
    fn page_after(
        &self,
        scope_fd: RawFd,
        after: Option<(u32, [u8; NAME_SIZE])>,
        count: usize,
    ) -> nix::Result<Vec<ChannelInfo>> {
        let mut entries = vec![ChannelInfo::EMPTY; count];
        let mut list = List::new(scope_fd, entries.as_mut_ptr(), count);
        if let Some((kind, name)) = after {
            list.kind = kind;
            list.name = name;
        }
        raw(self, LIST, &mut list)?;
        entries.truncate(list.count as usize);
        Ok(entries)
    }

    /// The names of all channels of a scope, page by page.
    pub fn names(&self, scope_fd: RawFd) -> nix::Result<Vec<Vec<u8>>> {
        let mut channels: Vec<ChannelInfo> = Vec::new();
        loop {
            let last = channels.last().map(|channel| (channel.kind, channel.name));
            let page = self.page_after(scope_fd, last, LIST_MAX)?;
            let is_last = page.len() < LIST_MAX;
            channels.extend(page);
            if is_last {
                let names = channels.iter().map(|channel| channel.name().to_vec());
                return Ok(names.collect());
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

/// The access with which a channel of this kind can be opened by a process that is alone.
pub fn access_of(kind: u32) -> u32 {
    if kind == KIND_PIPE { BOTH } else { WRITE }
}

/// What the limits count of a scope and of the user.
pub fn usage_of(ctl: &impl AsFd, scope_fd: RawFd) -> nix::Result<Usage> {
    let mut usage = Usage::new(scope_fd);
    raw(ctl, CTL_USAGE, &mut usage)?;
    Ok(usage)
}

/// Fails unless the own cgroup has no names, and the module no objects.
pub fn expect_no_channel(ctl: &Ctl) -> Result<()> {
    expect("names left", ctl.names(OWN), Ok(vec![]))?;
    expect_no_objects()
}

/// Creates a persistent channel with this mode in a process inside the cgroup.
pub fn persist_inside(cgroup: &Cgroup, name: &str, mode: u32) -> Result<()> {
    let creator = cgroup.spawn("the creator of a channel", || {
        let request = Open::new(name, BOTH | CREATE | PERSIST);
        let created = Ctl::new()?.open(Open { mode, ..request });
        created.map(drop).context("creating a channel")
    })?;
    creator.finish()
}

/// Creates a persistent channel as this user and group in a process inside the cgroup.
pub fn persist_inside_as(cgroup: &Cgroup, uid: u32, gid: u32, name: &str) -> Result<()> {
    let creator = cgroup.spawn("the creator of a channel", || {
        become_user_with_groups(uid, gid, &[])?;
        let created = Ctl::new()?.persist(OWN, name);
        created.context("creating a channel")
    })?;
    creator.finish()
}

/// The state of the channel of an endpoint of any kind.
pub fn endpoint_info(end: &impl AsFd) -> nix::Result<ChannelInfo> {
    get(end, ENDPOINT_INFO)
}
