// SPDX-License-Identifier: MIT OR Apache-2.0
//! An endpoint of a bus that never spins.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};

use anyhow::{Context, Result};
use nix::errno::Errno;
use sluice_abi::bus::{self, Params};
use sluice_abi::{CTL_OPEN, KIND_BUS, Open, Setting};

use crate::suites::fanout::channel::CAPACITY;

pub const CTL: &str = "/dev/sluice/ctl";
const NAME: &str = "fanout";

pub fn open(scope: &File, flags: u32, params: Params) -> Result<File> {
    let ctl = File::options().read(true).write(true).open(CTL);
    let ctl = ctl.with_context(|| format!("cannot open {CTL}; run as root"))?;
    let mut open = Open {
        kind: KIND_BUS,
        scope_fd: scope.as_raw_fd(),
        capacity: CAPACITY as u64,
        params: (&raw const params) as u64,
        ..Open::new(NAME, flags)
    };
    let fd = call(&ctl, CTL_OPEN, &mut open).context("cannot open a bus; see 'dmesg | tail'")?;
    // SAFETY: the call returned a new file descriptor.
    let endpoint = unsafe { File::from_raw_fd(fd) };
    call(&endpoint, bus::SET_SPIN, &mut Setting::new(0)).context("cannot turn off spinning")?;
    Ok(endpoint)
}

/// `argument` is the structure of this command.
pub fn call<T>(file: &File, command: libc::Ioctl, argument: &mut T) -> nix::Result<i32> {
    // SAFETY: the kernel accesses one structure of the size that it begins with, and what that names.
    Errno::result(unsafe { libc::ioctl(file.as_raw_fd(), command, argument) })
}
