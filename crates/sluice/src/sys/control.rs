// SPDX-License-Identifier: MIT OR Apache-2.0
//! /dev/sluice/ctl, and the other nodes of the module.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use sluice_abi as abi;

use super::{Argument, State, checked, ioctl, ioctl_once, raw, retry};
use crate::error::{Error, Result};

const CTL_NODE: &str = "/dev/sluice/ctl";
pub(crate) const PIPE_NODE: &str = "/dev/sluice/pipe";
pub(crate) const FEED_NODE: &str = "/dev/sluice/feed";

/// The parameters of an open that only channels of one kind have.
#[derive(Clone, Copy)]
pub(crate) enum Params<'a> {
    None,
    Ring(&'a abi::RingParams),
    Bus(&'a abi::bus::Params),
    Map(&'a abi::map::Params),
}

impl Params<'_> {
    fn address(self) -> u64 {
        match self {
            Self::None => 0,
            Self::Ring(params) => std::ptr::from_ref(params) as u64,
            Self::Bus(params) => std::ptr::from_ref(params) as u64,
            Self::Map(params) => std::ptr::from_ref(params) as u64,
        }
    }

    fn is_durable(self) -> bool {
        matches!(self, Self::Map(params) if params.flags & abi::map::DURABLE != 0)
    }
}

/// An open /dev/sluice/ctl.
#[derive(Debug)]
pub(crate) struct Control {
    file: File,
}

impl Control {
    pub fn open() -> Result<Self> {
        match File::open(CTL_NODE) {
            Ok(file) => Ok(Self { file }),
            Err(error) => Err(node_error(CTL_NODE, error)),
        }
    }

    /// Fails after a signal.
    pub fn call_once<A: Argument>(
        &self,
        command: libc::Ioctl,
        argument: &mut A,
    ) -> io::Result<i32> {
        ioctl_once(self.file.as_fd(), command, argument)
    }

    pub fn call<A: Argument>(&self, command: libc::Ioctl, argument: &mut A) -> io::Result<i32> {
        ioctl(self.file.as_fd(), command, argument)
    }

    /// Opens a channel, with the parameters of its kind. That of a durable map with EXCL fails after a signal, because the store may have
    /// created it.
    pub fn open_channel(&self, open: &abi::Open, params: Params<'_>) -> io::Result<i32> {
        let mut open = abi::Open {
            params: params.address(),
            ..*open
        };
        let once = params.is_durable() && open.flags & abi::OPEN_EXCL != 0;
        // SAFETY: the address is none, or that of a structure whose first word is its size. The kernel only reads it.
        let mut call = || checked(unsafe { self.raw(abi::CTL_OPEN, &raw mut open) });
        match once {
            true => call(),
            false => retry(call),
        }
    }

    /// The state of a channel.
    pub fn info(
        &self,
        kind: u32,
        scope_fd: i32,
        name: &[u8],
        info: &mut abi::ChannelInfo,
    ) -> io::Result<()> {
        let mut which = abi::Info {
            kind,
            ..abi::Info::new(scope_fd, name, info)
        };
        // SAFETY: the address is that of a structure whose first word is its size, accessed by nothing else until the call returns.
        retry(|| checked(unsafe { self.raw(abi::CTL_INFO, &raw mut which) }))?;
        Ok(())
    }

    /// The state of a channel of the kind.
    pub fn state<S: State>(&self, scope_fd: i32, name: &[u8]) -> io::Result<S> {
        let mut state = S::default();
        let mut which = abi::Info {
            kind: S::KIND,
            state: (&raw mut state) as u64,
            ..abi::Info::new(scope_fd, name, std::ptr::null_mut())
        };
        // SAFETY: the address is that of the kind's structure, whose first word is its size, accessed by nothing else until the call
        // returns.
        retry(|| checked(unsafe { self.raw(abi::CTL_INFO, &raw mut which) }))?;
        Ok(state)
    }

    /// The channels of a scope after {kind, name}, up to the length of `entries`.
    pub fn list(
        &self,
        scope_fd: i32,
        kind: u32,
        name: [u8; abi::NAME_SIZE],
        entries: &mut [abi::ChannelInfo],
    ) -> io::Result<usize> {
        let mut list = abi::List {
            kind,
            name,
            ..abi::List::new(scope_fd, entries.as_mut_ptr(), entries.len())
        };
        // SAFETY: the address is that of `count` entries of `entry_size` bytes, accessed by nothing else until the call returns; any
        // bytes are a valid entry.
        retry(|| checked(unsafe { self.raw(abi::CTL_LIST, &raw mut list) }))?;
        Ok((list.count as usize).min(entries.len()))
    }

    /// # Safety
    /// The command takes a structure of this type, and every address in it is valid for the command.
    unsafe fn raw<T>(&self, command: libc::Ioctl, argument: *mut T) -> i32 {
        // SAFETY: as the caller guarantees.
        unsafe { raw(self.file.as_fd(), command, argument) }
    }
}

/// The error for a node that could not be opened.
pub(crate) fn node_error(node: &'static str, error: io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::ENOENT) if node == FEED_NODE && Path::new(CTL_NODE).exists() => {
            Error::ModuleTooOld { missing: "feeds" }
        }
        Some(libc::ENOENT) if node == CTL_NODE && Path::new(PIPE_NODE).exists() => {
            Error::ModuleTooOld {
                missing: "named channels",
            }
        }
        // ENODEV: a node without a driver, as in an old copy of /dev.
        Some(libc::ENOENT | libc::ENODEV) => Error::ModuleNotLoaded { node },
        Some(libc::ENXIO) if node == CTL_NODE => Error::ModuleNotLoaded { node },
        // EPERM: by the device cgroup of a container.
        Some(libc::EACCES | libc::EPERM) => Error::NodePermission { node },
        _ => Error::io(format!("opening {node}"), error),
    }
}
