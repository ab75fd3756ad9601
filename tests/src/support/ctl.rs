// SPDX-License-Identifier: MIT OR Apache-2.0
//! /dev/sluice/ctl, as include/uapi/linux/sluice.h describes it.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use anyhow::{Context, Result};

use super::check::expect;
use super::ioctl::{Direction, command, raw, raw_with_result};
use super::kernel::expect_nothing_held;

const NODE: &str = "/dev/sluice/ctl";

pub const NAME_SIZE: usize = 64;
pub const KIND_PIPE: u32 = 1;
/// As a scope: the caller's own cgroup.
pub const OWN: RawFd = -1;
pub const LIST_MAX: usize = 64;
pub const ABI: u32 = 1;

pub const READ: u32 = 0x01;
pub const WRITE: u32 = 0x02;
pub const BOTH: u32 = READ | WRITE;
pub const CREATE: u32 = 0x04;
pub const EXCL: u32 = 0x08;
pub const PERSIST: u32 = 0x10;
pub const NONBLOCK: u32 = 0x20;
pub const ALL_FLAGS: u32 = 0x3f;

/// Of a channel: it is there without endpoints.
pub const PERSISTENT: u32 = 0x01;

pub const OPEN: u64 = command(Direction::In, 0x10, size_of::<Open>());
pub const UNLINK: u64 = command(Direction::In, 0x11, size_of::<Name>());
pub const INFO: u64 = command(Direction::InAndOut, 0x12, size_of::<Info>());
pub const LIST: u64 = command(Direction::InAndOut, 0x13, size_of::<List>());
pub const FEATURES: u64 = command(Direction::InAndOut, 0x14, size_of::<Features>());

/// A name as the structures hold it, cut off where their array ends.
pub fn name_bytes(name: impl AsRef<[u8]>) -> [u8; NAME_SIZE] {
    let mut bytes = [0; NAME_SIZE];
    for (to, from) in bytes.iter_mut().zip(name.as_ref()) {
        *to = *from;
    }
    bytes
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Open {
    pub size: u32,
    pub kind: u32,
    pub flags: u32,
    pub scope_fd: RawFd,
    pub name: [u8; NAME_SIZE],
    pub mode: u32,
    pub reserved: u32,
    pub capacity: u64,
}

impl Open {
    /// In the own cgroup, for the owner alone, with the default capacity.
    pub fn new(name: impl AsRef<[u8]>, flags: u32) -> Self {
        Open {
            size: size_of::<Self>() as u32,
            kind: KIND_PIPE,
            flags,
            scope_fd: OWN,
            name: name_bytes(name),
            mode: 0o600,
            reserved: 0,
            capacity: 0,
        }
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Name {
    pub size: u32,
    pub kind: u32,
    pub flags: u32,
    pub scope_fd: RawFd,
    pub name: [u8; NAME_SIZE],
}

impl Name {
    pub fn new(scope_fd: RawFd, name: impl AsRef<[u8]>) -> Self {
        Name {
            size: size_of::<Self>() as u32,
            kind: KIND_PIPE,
            flags: 0,
            scope_fd,
            name: name_bytes(name),
        }
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelInfo {
    pub kind: u32,
    pub flags: u32,
    pub name: [u8; NAME_SIZE],
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub readers: u32,
    pub writers: u32,
    pub reserved: u32,
    pub capacity: u64,
    pub bytes: u64,
}

impl ChannelInfo {
    pub const EMPTY: ChannelInfo = ChannelInfo {
        kind: 0,
        flags: 0,
        name: [0; NAME_SIZE],
        mode: 0,
        uid: 0,
        gid: 0,
        readers: 0,
        writers: 0,
        reserved: 0,
        capacity: 0,
        bytes: 0,
    };

    /// The name without the zeros behind it.
    pub fn name(&self) -> &[u8] {
        let end = self.name.iter().position(|&byte| byte == 0);
        &self.name[..end.unwrap_or(NAME_SIZE)]
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Info {
    pub which: Name,
    pub info: ChannelInfo,
}

impl Info {
    pub fn new(scope_fd: RawFd, name: impl AsRef<[u8]>) -> Self {
        let mut which = Name::new(scope_fd, name);
        which.size = size_of::<Self>() as u32;
        Info {
            which,
            info: ChannelInfo::EMPTY,
        }
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct List {
    /// What comes after it is listed; with a kind of 0, everything.
    pub after: Name,
    pub entries: u64,
    pub count: u32,
    pub entry_size: u32,
}

impl List {
    /// From the beginning, into memory that this does not keep.
    pub fn new(scope_fd: RawFd, entries: *mut ChannelInfo, count: usize) -> Self {
        let mut after = Name::new(scope_fd, b"");
        after.size = size_of::<Self>() as u32;
        after.kind = 0;
        List {
            after,
            entries: entries as u64,
            count: count as u32,
            entry_size: size_of::<ChannelInfo>() as u32,
        }
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    pub size: u32,
    pub abi: u32,
    pub kinds: u64,
    pub open_flags: u64,
}

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
        raw(self, UNLINK, &mut Name::new(scope_fd, name))
    }

    pub fn info(&self, scope_fd: RawFd, name: impl AsRef<[u8]>) -> nix::Result<ChannelInfo> {
        let mut info = Info::new(scope_fd, name);
        raw(self, INFO, &mut info)?;
        Ok(info.info)
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
            list.after.kind = KIND_PIPE;
            list.after.name = name_bytes(name);
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
