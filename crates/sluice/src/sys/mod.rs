// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ioctls of the module. Those of one kind with addresses in their structures are in the folder of the kind.

mod control;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use sluice_abi as abi;

use crate::error::{Error, Result};

pub(crate) use control::{Control, FEED_NODE, PIPE_NODE, Params, node_error};

/// An argument structure of the kernel, with the commands that take it.
pub(crate) trait Argument {
    const COMMANDS: &'static [libc::Ioctl];
}

macro_rules! arguments {
    ($($argument:ty: $($command:path),+;)*) => {$(
        impl Argument for $argument {
            const COMMANDS: &'static [libc::Ioctl] = &[$($command),+];
        }
    )*};
}

arguments! {
    abi::Setting:
        abi::PIPE_SET_CAPACITY,
        abi::PIPE_SET_SPIN,
        abi::feed::SET_SPIN,
        abi::feed::CLAIM,
        abi::bus::SET_FORMAT,
        abi::bus::SET_SPIN,
        abi::bus::TURN,
        abi::map::WATCH,
        abi::map::SYNC;
    abi::PipeInfo: abi::PIPE_INFO;
    abi::RingInfo: abi::RING_INFO;
    abi::RingWait: abi::RING_WAIT;
    abi::feed::Start: abi::feed::START;
    abi::feed::Info: abi::feed::INFO;
    abi::bus::Info: abi::bus::INFO;
    abi::map::Info: abi::map::INFO;
    abi::ChannelInfo: abi::ENDPOINT_INFO;
    abi::Unlink: abi::CTL_UNLINK, abi::CTL_DESTROY;
    abi::Features: abi::CTL_FEATURES;
    abi::Usage: abi::CTL_USAGE;
}

/// The state of channels of a kind.
pub(crate) trait State: Argument + Default {
    const KIND: u32;
    const QUERY: libc::Ioctl;
}

impl State for abi::RingInfo {
    const KIND: u32 = abi::KIND_RING;
    const QUERY: libc::Ioctl = abi::RING_INFO;
}

impl State for abi::feed::Info {
    const KIND: u32 = abi::KIND_FEED;
    const QUERY: libc::Ioctl = abi::feed::INFO;
}

impl State for abi::bus::Info {
    const KIND: u32 = abi::KIND_BUS;
    const QUERY: libc::Ioctl = abi::bus::INFO;
}

impl State for abi::map::Info {
    const KIND: u32 = abi::KIND_MAP;
    const QUERY: libc::Ioctl = abi::map::INFO;
}

/// Calls ioctl(2), and repeats it after a signal.
pub(crate) fn ioctl<A: Argument>(
    fd: BorrowedFd<'_>,
    command: libc::Ioctl,
    argument: &mut A,
) -> io::Result<i32> {
    retry(|| ioctl_once(fd, command, argument))
}

/// Calls ioctl(2). Fails after a signal.
pub(crate) fn ioctl_once<A: Argument>(
    fd: BorrowedFd<'_>,
    command: libc::Ioctl,
    argument: &mut A,
) -> io::Result<i32> {
    debug_assert!(A::COMMANDS.contains(&command));
    // SAFETY: the command takes a structure of this type, in which this crate leaves every address null, and the kernel
    // accesses no more of it than the size in its first word.
    checked(unsafe { libc::ioctl(fd.as_raw_fd(), command, std::ptr::from_mut(argument)) })
}

/// The state of an endpoint and of its channel.
pub(crate) fn query<S: State>(endpoint: BorrowedFd<'_>) -> io::Result<S> {
    let mut state = S::default();
    ioctl(endpoint, S::QUERY, &mut state)?;
    Ok(state)
}

/// Sets a value of an endpoint, and returns the effective one.
pub(crate) fn set(fd: BorrowedFd<'_>, command: libc::Ioctl, value: u64) -> io::Result<u64> {
    let mut setting = abi::Setting::new(value);
    ioctl(fd, command, &mut setting)?;
    Ok(setting.value)
}

/// Sets the spin limit of an endpoint, and returns the effective one.
pub(crate) fn set_spin_limit(
    endpoint: BorrowedFd<'_>,
    command: libc::Ioctl,
    limit: Duration,
) -> Result<Duration> {
    let nanoseconds = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
    set(endpoint, command, nanoseconds)
        .map(Duration::from_nanos)
        .map_err(|error| Error::io("setting the spin limit", error))
}

pub(crate) fn ioctl_without_argument(fd: BorrowedFd<'_>, command: libc::Ioctl) -> io::Result<i32> {
    debug_assert!([abi::RING_WAKE, abi::RING_DETACH, abi::feed::STOP].contains(&command));
    // SAFETY: the command takes no address. The zero defines the register of the argument.
    checked(unsafe { libc::ioctl(fd.as_raw_fd(), command, 0_usize) })
}

/// # Safety
/// The command takes a structure of this type, and every address in it is valid for the command.
pub(crate) unsafe fn raw<T>(fd: BorrowedFd<'_>, command: libc::Ioctl, argument: *mut T) -> i32 {
    // SAFETY: as the caller guarantees.
    unsafe { libc::ioctl(fd.as_raw_fd(), command, argument) }
}

pub(crate) fn retry(mut call: impl FnMut() -> io::Result<i32>) -> io::Result<i32> {
    loop {
        match call() {
            Err(error) if is_interrupt(&error) => {}
            other => return other,
        }
    }
}

pub(crate) fn is_interrupt(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Interrupted
}

pub(crate) fn checked(returned: i32) -> io::Result<i32> {
    match returned {
        ..0 => Err(io::Error::last_os_error()),
        _ => Ok(returned),
    }
}
