// SPDX-License-Identifier: MIT OR Apache-2.0
//! /dev/sluice/ctl and its ioctls.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;

use sluice_abi as abi;

use crate::error::{Error, Result};
use crate::pipe::PIPE_NODE;

const CTL_NODE: &str = "/dev/sluice/ctl";

/// An argument structure of the kernel, with the commands that take it.
pub(crate) trait Argument {
    const COMMANDS: &'static [libc::Ioctl];
}

impl Argument for abi::Setting {
    const COMMANDS: &'static [libc::Ioctl] = &[abi::PIPE_SET_CAPACITY, abi::PIPE_SET_SPIN];
}

impl Argument for abi::PipeInfo {
    const COMMANDS: &'static [libc::Ioctl] = &[abi::PIPE_INFO];
}

impl Argument for abi::Open {
    const COMMANDS: &'static [libc::Ioctl] = &[abi::CTL_OPEN];
}

impl Argument for abi::Unlink {
    const COMMANDS: &'static [libc::Ioctl] = &[abi::CTL_UNLINK, abi::CTL_DESTROY];
}

impl Argument for abi::Features {
    const COMMANDS: &'static [libc::Ioctl] = &[abi::CTL_FEATURES];
}

/// Calls ioctl(2), and repeats it after a signal.
pub(crate) fn ioctl<A: Argument>(
    fd: BorrowedFd<'_>,
    command: libc::Ioctl,
    argument: &mut A,
) -> io::Result<i32> {
    debug_assert!(A::COMMANDS.contains(&command));
    // SAFETY: the command takes a structure of this type, in which this crate leaves every address null, and the kernel
    // accesses no more of it than the size in its first word.
    retry(|| unsafe { libc::ioctl(fd.as_raw_fd(), command, std::ptr::from_mut(argument)) })
}

fn retry(mut call: impl FnMut() -> i32) -> io::Result<i32> {
    loop {
        let returned = call();
        if returned >= 0 {
            return Ok(returned);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
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

    pub fn call<A: Argument>(&self, command: libc::Ioctl, argument: &mut A) -> io::Result<i32> {
        ioctl(self.file.as_fd(), command, argument)
    }

    /// The state of a channel.
    pub fn info(&self, scope_fd: i32, name: &[u8], info: &mut abi::ChannelInfo) -> io::Result<()> {
        let mut which = abi::Info::new(scope_fd, name, info);
        // SAFETY: the address is that of a structure whose first word is its size, accessed by nothing else until the call returns.
        retry(|| unsafe { libc::ioctl(self.file.as_raw_fd(), abi::CTL_INFO, &raw mut which) })?;
        Ok(())
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
        retry(|| unsafe { libc::ioctl(self.file.as_raw_fd(), abi::CTL_LIST, &raw mut list) })?;
        Ok((list.count as usize).min(entries.len()))
    }
}

/// The error for a node that could not be opened.
pub(crate) fn node_error(node: &'static str, error: io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::ENOENT) if node == CTL_NODE && Path::new(PIPE_NODE).exists() => {
            Error::ModuleTooOld {
                missing: "named channels",
            }
        }
        // ENODEV: a node without a driver, as in an old copy of /dev.
        Some(libc::ENOENT | libc::ENODEV) => Error::ModuleNotLoaded { node },
        Some(libc::ENXIO) if node == CTL_NODE => Error::ModuleNotLoaded { node },
        _ => Error::io(format!("opening {node}"), error),
    }
}
