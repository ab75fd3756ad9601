// SPDX-License-Identifier: MIT OR Apache-2.0
//! Device rings: their channels, the ioctls of an endpoint, and the memory that it maps.

use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};
use nix::errno::Errno;
use serde::{Serialize, de::DeserializeOwned};
use sluice_abi::ring::{self, Ctrl as CtrlLayout};

pub use sluice_abi::ring::{
    CAPACITY_MAX, CLOSED, DESTROYED, DIED, Header, MMAP_CONSUMER, MMAP_DATA, MMAP_PRODUCER,
    NODE_ANY, RECORD_READY, ROLE_CLOSED, ROLE_DESTROYED, ROLE_DIED, ROLE_TAKEN, ROLE_VACANT,
};
pub use sluice_abi::{
    KIND_RING, RING_DETACH, RING_INFO, RING_INFO_SIZE_VER0, RING_PARAMS_SIZE_VER0, RING_WAIT,
    RING_WAIT_SIZE_VER0, RING_WAKE, RingInfo, RingParams, RingWait,
};

use super::child::{Child, spawn_keeping};
use super::ctl::{
    CREATE, ChannelInfo, Ctl, DESTROY, EXCL, OWN, Open, PERSIST, READ, UNLINK, WRITE,
};
use super::event::Event;
use super::ioctl::{get, raw};
use super::memory::PAGE;

pub const READ_ONLY: libc::c_int = libc::PROT_READ;
pub const READ_WRITE: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;
/// No timeout of a wait.
pub const FOREVER: u64 = u64::MAX;
/// The capacity of most tests: two pages.
pub const CAPACITY: usize = 2 * PAGE;

/// A side of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Producer,
    Consumer,
}

impl Role {
    pub const ALL: [Self; 2] = [Self::Producer, Self::Consumer];

    /// The flag that opens it.
    pub fn flag(self) -> u32 {
        match self {
            Self::Producer => WRITE,
            Self::Consumer => READ,
        }
    }

    pub fn number(self) -> u32 {
        match self {
            Self::Producer => ring::PRODUCER,
            Self::Consumer => ring::CONSUMER,
        }
    }

    pub fn peer(self) -> Self {
        match self {
            Self::Producer => Self::Consumer,
            Self::Consumer => Self::Producer,
        }
    }

    /// The offset of its control page.
    pub fn ctrl_offset(self) -> u64 {
        match self {
            Self::Producer => MMAP_PRODUCER,
            Self::Consumer => MMAP_CONSUMER,
        }
    }

    /// Its state in this information.
    pub fn state_in(self, info: &RingInfo) -> u32 {
        match self {
            Self::Producer => info.producer,
            Self::Consumer => info.consumer,
        }
    }
}

/// A request for a ring of `CAPACITY`.
pub fn request(name: impl AsRef<[u8]>, flags: u32) -> Open {
    Open {
        kind: KIND_RING,
        capacity: CAPACITY as u64,
        ..Open::new(name, flags)
    }
}

/// The rings of the own cgroup.
pub struct Rings(pub Ctl);

impl Rings {
    pub fn new() -> Result<Self> {
        Ok(Rings(Ctl::new()?))
    }

    pub fn open(&self, request: Open) -> nix::Result<OwnedFd> {
        self.0.open(request)
    }

    /// Opens a role of a ring, which it creates if necessary.
    pub fn role(&self, name: impl AsRef<[u8]>, role: Role) -> nix::Result<OwnedFd> {
        self.open(request(name, role.flag() | CREATE))
    }

    /// Opens a role of an existing ring.
    pub fn attach(&self, name: impl AsRef<[u8]>, role: Role) -> nix::Result<OwnedFd> {
        self.open(request(name, role.flag()))
    }

    /// Creates a persistent ring, both of whose roles are vacant.
    pub fn persist(&self, name: impl AsRef<[u8]>) -> nix::Result<()> {
        self.open(request(name, WRITE | CREATE | EXCL | PERSIST))
            .map(drop)
    }

    /// A role with its memory mapped, of a ring that is created if necessary.
    pub fn side(&self, name: impl AsRef<[u8]>, role: Role) -> Result<Side> {
        let end = self.role(name, role);
        Side::of(end.with_context(|| format!("opening the {role:?}"))?)
    }

    /// Both sides of a new ring.
    pub fn sides(&self, name: &str) -> Result<(Side, Side)> {
        Ok((
            self.side(name, Role::Producer)?,
            self.side(name, Role::Consumer)?,
        ))
    }

    pub fn unlink(&self, name: impl AsRef<[u8]>) -> nix::Result<()> {
        self.unlink_in(OWN, name)
    }

    pub fn unlink_in(&self, scope_fd: RawFd, name: impl AsRef<[u8]>) -> nix::Result<()> {
        self.0.remove(UNLINK, KIND_RING, scope_fd, name)
    }

    pub fn destroy(&self, name: impl AsRef<[u8]>) -> nix::Result<()> {
        self.0.remove(DESTROY, KIND_RING, OWN, name)
    }

    pub fn info(&self, name: impl AsRef<[u8]>) -> nix::Result<(ChannelInfo, RingInfo)> {
        self.0.state(KIND_RING, OWN, name)
    }
}

pub fn wake(end: &impl AsFd) -> nix::Result<()> {
    raw(end, RING_WAKE, ptr::null_mut::<u8>())
}

pub fn wait(end: &impl AsFd, seq: u32, timeout_ns: u64) -> nix::Result<()> {
    raw(end, RING_WAIT, &mut RingWait::new(seq, timeout_ns))
}

pub fn detach(end: &impl AsFd) -> nix::Result<()> {
    raw(end, RING_DETACH, ptr::null_mut::<u8>())
}

pub fn info(end: &impl AsFd) -> nix::Result<RingInfo> {
    get(end, RING_INFO)
}

/// A mapping of an endpoint.
pub struct Region {
    start: *mut u8,
    len: usize,
}

/// The module refuses it with EACCES. Kernels that forbid it for all anonymous inodes return EPERM before they ask the
/// module.
pub fn expect_not_executable(what: &str, mapped: nix::Result<()>) -> Result<()> {
    let refused = matches!(mapped, Err(Errno::EACCES | Errno::EPERM));
    ensure!(refused, "{what}, executable: {mapped:?}");
    Ok(())
}

impl Region {
    pub fn map(
        end: &impl AsFd,
        offset: u64,
        len: usize,
        protection: libc::c_int,
    ) -> nix::Result<Self> {
        Self::map_with(end, offset, len, protection, libc::MAP_SHARED)
    }

    pub fn map_with(
        end: &impl AsFd,
        offset: u64,
        len: usize,
        protection: libc::c_int,
        flags: libc::c_int,
    ) -> nix::Result<Self> {
        Self::map_at(ptr::null_mut(), end, offset, len, protection, flags)
    }

    /// At this address, if `flags` include MAP_FIXED; it must belong to the caller.
    pub fn map_at(
        start: *mut u8,
        end: &impl AsFd,
        offset: u64,
        len: usize,
        protection: libc::c_int,
        flags: libc::c_int,
    ) -> nix::Result<Self> {
        let fd = end.as_fd().as_raw_fd();
        // SAFETY: touches nothing that a Rust reference covers: the kernel chooses the address, or it is the caller's.
        let mapped = unsafe { libc::mmap(start.cast(), len, protection, flags, fd, offset as i64) };
        if mapped == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        Ok(Region {
            start: mapped.cast(),
            len,
        })
    }

    /// The control page of this role.
    pub fn ctrl(end: &impl AsFd, role: Role, protection: libc::c_int) -> nix::Result<Self> {
        Self::map(end, role.ctrl_offset(), PAGE, protection)
    }

    pub fn start(&self) -> *mut u8 {
        self.start
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn protect(&self, protection: libc::c_int) -> nix::Result<()> {
        // SAFETY: our own mapping; a store that faults afterwards is part of a test.
        Errno::result(unsafe { libc::mprotect(self.start.cast(), self.len, protection) }).map(drop)
    }

    pub fn advise(&self, advice: libc::c_int) -> nix::Result<()> {
        // SAFETY: our own mapping of shared memory, to which only atomics refer.
        Errno::result(unsafe { libc::madvise(self.start.cast(), self.len, advice) }).map(drop)
    }

    /// The address of the byte at this offset.
    pub fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset < self.len, "the offset is inside the mapping");
        self.start.wrapping_add(offset)
    }

    pub fn read(&self, offset: usize, count: usize) -> Vec<u8> {
        let byte = |at| {
            // SAFETY: inside the mapping, which is readable; single bytes cannot tear.
            unsafe { self.at(at).read_volatile() }
        };
        (offset..offset + count).map(byte).collect()
    }

    /// The mapping must be writable.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        for (at, byte) in (offset..).zip(bytes) {
            // SAFETY: inside the mapping; single bytes cannot tear.
            unsafe { self.at(at).write_volatile(*byte) };
        }
    }

    /// Whether every byte is zero.
    pub fn is_zero(&self) -> bool {
        (0..self.len / size_of::<u64>()).all(|index| {
            // SAFETY: aligned, and inside the mapping, which lives as long as self.
            let word = unsafe { AtomicU64::from_ptr(self.at(index * 8).cast()) };
            word.load(Ordering::Relaxed) == 0
        })
    }

    pub fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: aligned, and inside the mapping, which lives as long as self.
        unsafe { AtomicU32::from_ptr(self.at(offset).cast()) }
    }
}

// SAFETY: a mapping is only an address range; accesses to it are unsafe where they happen.
unsafe impl Sync for Region {}
// SAFETY: as above; it can be unmapped by any thread.
unsafe impl Send for Region {}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which is not accessible after this value is dropped.
        unsafe { libc::munmap(self.start.cast(), self.len) };
    }
}

/// A mapped control page.
pub struct Ctrl(pub Region);

impl Ctrl {
    pub fn pos(&self) -> &AtomicU64 {
        // SAFETY: aligned, and inside the mapping, which lives as long as self.
        unsafe { AtomicU64::from_ptr(self.0.at(offset_of!(CtrlLayout, pos)).cast()) }
    }

    pub fn wait_flags(&self) -> &AtomicU32 {
        self.0.word(offset_of!(CtrlLayout, wait_flags))
    }

    pub fn wake_seq(&self) -> &AtomicU32 {
        self.0.word(offset_of!(CtrlLayout, wake_seq))
    }

    pub fn wake_ack(&self) -> &AtomicU32 {
        self.0.word(offset_of!(CtrlLayout, wake_ack))
    }

    pub fn closed(&self) -> u32 {
        let word = self.0.word(offset_of!(CtrlLayout, closed));
        word.load(Ordering::Acquire)
    }

    pub fn set_closed(&self, reason: u32) {
        let word = self.0.word(offset_of!(CtrlLayout, closed));
        word.store(reason, Ordering::Release);
    }
}

/// An endpoint with its regions mapped.
pub struct Side {
    pub end: OwnedFd,
    pub own: Ctrl,
    pub peer: Ctrl,
    pub data: Region,
}

impl Side {
    pub fn of(end: OwnedFd) -> Result<Self> {
        let info = info(&end).context("asking an endpoint for its role")?;
        let found = Role::ALL.into_iter().find(|r| r.number() == info.role);
        let role = found.with_context(|| format!("the endpoint has role {}", info.role))?;
        let data_protection = match role {
            Role::Producer => READ_WRITE,
            Role::Consumer => READ_ONLY,
        };
        let len = 2 * info.capacity as usize;
        let map = || -> nix::Result<_> {
            Ok((
                Region::ctrl(&end, role, READ_WRITE)?,
                Region::ctrl(&end, role.peer(), READ_ONLY)?,
                Region::map(&end, MMAP_DATA, len, data_protection)?,
            ))
        };
        let (own, peer, data) = map().with_context(|| format!("mapping the {role:?}"))?;
        Ok(Side {
            end,
            own: Ctrl(own),
            peer: Ctrl(peer),
            data,
        })
    }

    /// Writes bytes at the beginning of the data and publishes them.
    pub fn publish(&self, bytes: &[u8]) {
        self.data.write(0, bytes);
        self.own.pos().store(bytes.len() as u64, Ordering::Release);
    }

    /// Increments the own wake_seq and wakes the peer.
    pub fn notify(&self) -> nix::Result<()> {
        self.own.wake_seq().fetch_add(1, Ordering::SeqCst);
        wake(&self.end)
    }

    /// The wake_seq of the peer now.
    pub fn seq(&self) -> u32 {
        self.peer.wake_seq().load(Ordering::SeqCst)
    }

    /// Acknowledges every wake-up so far.
    pub fn drain(&self) {
        self.own.wake_ack().store(self.seq(), Ordering::SeqCst);
    }
}

impl AsFd for Side {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }
}

/// A child that runs `body` with a side of the ring `name`; it has the side when this returns.
pub fn spawn_side<T, F>(name: &str, role: Role, body: F) -> Result<Child<T>>
where
    T: Serialize + DeserializeOwned,
    F: FnOnce(&Side) -> Result<T>,
{
    let ready = Event::new()?;
    let child = spawn_keeping(&format!("the {role:?}"), &ready.fds(), || {
        let side = Rings::new()?.side(name, role)?;
        ready.notify()?;
        body(&side)
    })?;
    ready.wait("the child has its side")?;
    Ok(child)
}

/// The flags of a mapping in /proc/self/smaps, such as `rd` and `mw`.
pub fn smaps_flags(start: *const u8) -> Result<Vec<String>> {
    let table = std::fs::read_to_string("/proc/self/smaps").context("reading smaps")?;
    let line = table
        .lines()
        .skip_while(|line| !line.starts_with(&format!("{:x}-", start as usize)))
        .find_map(|line| line.strip_prefix("VmFlags:"));
    let flags: Vec<String> = line
        .context("smaps has no such mapping")?
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    ensure!(!flags.is_empty(), "smaps shows no flags");
    Ok(flags)
}
