// SPDX-License-Identifier: MIT OR Apache-2.0
//! /dev/sluice/ctl and its ioctls.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

use sluice_abi as abi;

use crate::error::{Error, Result};
use crate::feed::FEED_NODE;
use crate::map::{DeleteOptions, SetOptions};
use crate::pipe::PIPE_NODE;

const CTL_NODE: &str = "/dev/sluice/ctl";

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
        abi::map::WATCH,
        abi::map::SYNC;
    abi::PipeInfo: abi::PIPE_INFO;
    abi::RingInfo: abi::RING_INFO;
    abi::RingWait: abi::RING_WAIT;
    abi::feed::Start: abi::feed::START;
    abi::feed::Info: abi::feed::INFO;
    abi::bus::Info: abi::bus::INFO;
    abi::map::Info: abi::map::INFO;
    abi::keeper::Keep: abi::CTL_KEEP;
    abi::keeper::Ready: abi::keeper::READY;
    abi::keeper::Ack: abi::keeper::ACK;
    abi::keeper::End: abi::keeper::END;
    abi::Unlink: abi::CTL_UNLINK, abi::CTL_DESTROY;
    abi::Features: abi::CTL_FEATURES;
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

/// Releases all messages before the sequence `released`, and receives up to the length of `entries`. Returns their number.
pub(crate) fn bus_receive(
    fd: BorrowedFd<'_>,
    released: u64,
    entries: &mut [abi::bus::Entry],
) -> io::Result<usize> {
    let mut receive = abi::bus::Receive::new(entries.as_mut_ptr(), entries.len(), released);
    // SAFETY: the address is that of `count` entries, accessed by nothing else until the call returns; any bytes are a valid entry.
    retry(|| checked(unsafe { raw(fd, abi::bus::RECEIVE, &raw mut receive) }))?;
    Ok((receive.count as usize).min(entries.len()))
}

/// The subscribers of a bus after the one with the id `after`, up to the length of `entries`. Returns their number.
pub(crate) fn bus_subscribers(
    fd: BorrowedFd<'_>,
    after: u64,
    entries: &mut [abi::bus::SubscriberInfo],
) -> io::Result<usize> {
    let mut list = abi::bus::Subscribers::new(after, entries.as_mut_ptr(), entries.len());
    // SAFETY: as in bus_receive().
    retry(|| checked(unsafe { raw(fd, abi::bus::SUBSCRIBERS, &raw mut list) }))?;
    Ok((list.count as usize).min(entries.len()))
}

/// Copies the value of a key into the room. Returns the operation with its results, some of which it has after an error, too.
pub(crate) fn map_get(
    fd: BorrowedFd<'_>,
    key: &[u8],
    room: &mut [u8],
) -> (abi::map::Op, io::Result<()>) {
    let mut op = abi::map::Op::get(key, room);
    // SAFETY: the addresses and lengths are those of the key and of the room, which nothing else accesses until the call returns.
    let called = retry(|| checked(unsafe { raw(fd, abi::map::GET, &raw mut op) }));
    (op, called.map(drop))
}

/// Sets a value, and returns whether that created the entry. Also returns the operation, as map_get() does; after an error its version
/// tells whether the change is made.
pub(crate) fn map_set(
    fd: BorrowedFd<'_>,
    key: &[u8],
    value: &[u8],
    options: SetOptions,
) -> (abi::map::Op, io::Result<bool>) {
    let mut op = options.apply(abi::map::Op::set(key, value));
    // SAFETY: the addresses and lengths are those of the key and of the value, which the kernel only reads.
    let called = unsafe { map_change(fd, abi::map::SET, &mut op) };
    (op, called.map(|created| created > 0))
}

/// Deletes the entry of a key. Returns the operation, as map_set() does.
pub(crate) fn map_delete(
    fd: BorrowedFd<'_>,
    key: &[u8],
    options: DeleteOptions,
) -> (abi::map::Op, io::Result<()>) {
    let mut op = options.apply(abi::map::Op::delete(key));
    // SAFETY: the address and length are those of the key, which the kernel only reads.
    let called = unsafe { map_change(fd, abi::map::DELETE, &mut op) };
    (op, called.map(drop))
}

/// Calls a set or a delete, and repeats it after a signal, unless that came while a change that is made waited for the store.
///
/// # Safety
/// The command is one of the two, and the addresses in the operation are valid for it.
unsafe fn map_change(
    fd: BorrowedFd<'_>,
    command: libc::Ioctl,
    op: &mut abi::map::Op,
) -> io::Result<i32> {
    let passed = op.version;
    loop {
        // SAFETY: as the caller guarantees.
        match checked(unsafe { raw(fd, command, std::ptr::from_mut(op)) }) {
            Err(error) if is_interrupt(&error) && op.version == passed => {}
            other => return other,
        }
    }
}

/// What a call with steps has done.
pub(crate) struct Executed {
    /// The steps that were executed.
    pub count: usize,
    /// Why those changes of them that are made, and wait for the store, are not known to be stored.
    pub unstored: Option<io::Error>,
}

/// The result of a step before it is executed, which no operation returns.
const UNEXECUTED: i32 = i32::MIN;

/// Executes the steps up to a signal, and fills in their results.
///
/// # Safety
/// Every address in the steps is valid for its length and its command, and nothing else accesses what a get writes to.
pub(crate) unsafe fn map_batch(
    fd: BorrowedFd<'_>,
    steps: &mut [abi::map::Step],
) -> io::Result<Executed> {
    steps.iter_mut().for_each(|step| step.result = UNEXECUTED);
    loop {
        let mut batch = abi::map::Batch::new(steps.as_mut_ptr(), steps.len());
        // SAFETY: the address is that of `count` steps, accessed by nothing else until the call returns; those in them are valid, as
        // the caller guarantees.
        let called = checked(unsafe { raw(fd, abi::map::BATCH, &raw mut batch) });
        let count = (batch.count as usize).min(steps.len());
        match executed(called, count, steps) {
            Err(error) if is_interrupt(&error) => {}
            other => return other,
        }
    }
}

/// Fails only if no step was executed.
fn executed(
    called: io::Result<i32>,
    count: usize,
    steps: &[abi::map::Step],
) -> io::Result<Executed> {
    let is_executed = |step: &&abi::map::Step| step.result != UNEXECUTED;
    match called {
        Ok(_) => Ok(Executed {
            count,
            unstored: None,
        }),
        Err(error) => match steps.iter().take_while(is_executed).count() {
            0 => Err(error),
            count => Ok(Executed {
                count,
                unstored: Some(error),
            }),
        },
    }
}

/// A page of a dump.
pub(crate) struct DumpPage {
    /// Bytes with records.
    pub len: usize,
    pub count: u32,
}

/// Why there is no page.
pub(crate) enum DumpFailure {
    /// The room for the next record.
    TooSmall {
        needed: usize,
    },
    Call(io::Error),
}

/// The next entries of a dump, as many as the room holds.
pub(crate) fn map_dump(
    fd: BorrowedFd<'_>,
    flags: u32,
    cursor: &mut abi::map::Cursor,
    room: &mut [u8],
) -> std::result::Result<DumpPage, DumpFailure> {
    let mut dump = abi::map::Dump::new(flags, *cursor, room);
    // SAFETY: the address and length are those of the room, which nothing else accesses until the call returns.
    let called = retry(|| checked(unsafe { raw(fd, abi::map::DUMP, &raw mut dump) }));
    let len = dump.length as usize;
    match called {
        Ok(_) => {
            *cursor = dump.cursor;
            Ok(DumpPage {
                len: len.min(room.len()),
                count: dump.count,
            })
        }
        Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => {
            Err(DumpFailure::TooSmall { needed: len })
        }
        Err(error) => Err(DumpFailure::Call(error)),
    }
}

/// Begins to restore a durable map: that of a stream, or of a scope if it is 0. Returns the stream.
pub(crate) fn keep_create(
    fd: BorrowedFd<'_>,
    stream: u64,
    scope_fd: i32,
    map: &abi::keeper::Map,
    sequence: u64,
    limit: u64,
) -> io::Result<u64> {
    let mut create = abi::keeper::Create::new(stream, scope_fd, map, sequence, limit);
    // SAFETY: the address is that of the map, which the kernel only reads.
    retry(|| checked(unsafe { raw(fd, abi::keeper::CREATE, &raw mut create) }))?;
    Ok(create.stream)
}

/// Restores entries of a durable map. Returns the number of those that were restored.
///
/// # Safety
/// Every address in the entries is valid for its length. The kernel only reads them.
pub(crate) unsafe fn keep_restore(
    fd: BorrowedFd<'_>,
    stream: u64,
    entries: &[abi::keeper::Entry],
) -> io::Result<usize> {
    let mut restore = abi::keeper::Restore::new(stream, entries);
    // SAFETY: the address is that of `count` entries, which the kernel only reads; those in them are valid, as the caller guarantees.
    retry(|| checked(unsafe { raw(fd, abi::keeper::RESTORE, &raw mut restore) }))?;
    Ok((restore.count as usize).min(entries.len()))
}

/// # Safety
/// The command takes a structure of this type, and every address in it is valid for the command.
unsafe fn raw<T>(fd: BorrowedFd<'_>, command: libc::Ioctl, argument: *mut T) -> i32 {
    // SAFETY: as the caller guarantees.
    unsafe { libc::ioctl(fd.as_raw_fd(), command, argument) }
}

fn retry(mut call: impl FnMut() -> io::Result<i32>) -> io::Result<i32> {
    loop {
        match call() {
            Err(error) if is_interrupt(&error) => {}
            other => return other,
        }
    }
}

fn is_interrupt(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Interrupted
}

fn checked(returned: i32) -> io::Result<i32> {
    match returned {
        ..0 => Err(io::Error::last_os_error()),
        _ => Ok(returned),
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(results: [i32; 3]) -> [abi::map::Step; 3] {
        results.map(|result| abi::map::Step {
            result,
            ..abi::map::Step::default()
        })
    }

    #[test]
    fn only_a_batch_without_an_executed_step_fails() {
        let interrupted = || Err(io::Error::from_raw_os_error(libc::EINTR));
        let none = executed(interrupted(), 3, &steps([UNEXECUTED; 3]));
        assert!(none.is_err_and(|error| is_interrupt(&error)));
        let some = executed(interrupted(), 3, &steps([0, -libc::ENOENT, UNEXECUTED])).unwrap();
        assert_eq!(some.count, 2);
        assert!(some.unstored.is_some_and(|error| is_interrupt(&error)));
        let all = executed(Ok(0), 2, &steps([0, 1, UNEXECUTED])).unwrap();
        assert_eq!(all.count, 2);
        assert!(all.unstored.is_none());
    }
}
