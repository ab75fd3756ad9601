// SPDX-License-Identifier: MIT OR Apache-2.0
//! What both sides of a ring have: the memory, the socket, and ways to wait for the other side and to wake it.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::SendFlags;
use rustix::thread::{MembarrierCommand, futex, membarrier};
use sluice_ring::sync::{AtomicU32, spin_loop};
use sluice_ring::{Bed, Call, How, Lie, Memory, Pace, Rest, Side, Spin};

use super::error::{Error, Result};
use super::handshake::Role;
use super::mapping::Mapping;
#[cfg(feature = "tokio")]
use super::socket::Drained;
use super::watch::Peer;

#[derive(Debug)]
pub(super) struct Link {
    socket: OwnedFd,
    mapping: Mapping,
    role: Role,
    peer: Arc<Peer>,
    pub pace: Pace,
    spin: Spin,
    rest: Rest,
    call: Call,
}

/// How long a call may wait.
#[derive(Clone, Copy, Debug)]
pub(super) enum Patience {
    None,
    For(Duration),
    Endless,
}

impl Patience {
    #[inline]
    pub fn is_some(self) -> bool {
        !matches!(self, Self::None)
    }
}

/// What became of waiting.
pub(super) enum Awaited<T> {
    Found(T),
    /// The other side said that it is done.
    Closed,
}

/// What a look found.
pub(super) type Look<T> = std::result::Result<Option<T>, Lie>;

impl Link {
    /// `registered`: both sides are, with membarrier(2).
    pub fn new(
        socket: OwnedFd,
        mapping: Mapping,
        role: Role,
        registered: bool,
        spin: Duration,
    ) -> Result<Self> {
        Ok(Self {
            peer: Peer::watch(&socket, &mapping, role)?,
            socket,
            mapping,
            role,
            pace: Pace::default(),
            spin: Spin::new(spin),
            rest: Rest::new(registered),
            call: Call::new(registered),
        })
    }

    #[cfg(feature = "tokio")]
    pub fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    pub fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    #[inline]
    fn sides(&self) -> (&Side, &Side) {
        sides(&self.mapping, self.role)
    }

    /// Whether there is somebody who could take what this side gives.
    #[inline]
    pub fn check(&self) -> Result<()> {
        let (_, other) = self.sides();
        if other.is_closed() {
            return Err(Error::Closed);
        }
        match self.peer.is_gone() {
            true => Err(Error::Died),
            false => Ok(()),
        }
    }

    /// Wakes the other side if it sleeps. To be called after everything that it may wait for.
    #[inline]
    pub fn call(&mut self) {
        let (own, other) = sides(&self.mapping, self.role);
        self.call.out(own, other, &Socket(&self.socket));
    }

    /// Looks until there is something, the other side is done, or patience ends.
    pub fn wait<T>(
        &mut self,
        patience: Patience,
        mut look: impl FnMut() -> Look<T>,
    ) -> Result<Awaited<T>> {
        let until = match patience {
            Patience::None => return self.look_once(look),
            Patience::For(time) => Instant::now().checked_add(time).map(|until| (until, time)),
            Patience::Endless => None,
        };
        loop {
            if let Some(found) = self.spin(until.map(|(until, _)| until), &mut look) {
                return found.map(Awaited::Found).map_err(Error::from);
            }
            if let Some(end) = self.end(&mut look) {
                return end;
            }
            let left = until.map(|(until, _)| until.saturating_duration_since(Instant::now()));
            if let (Some(Duration::ZERO), Some((_, time))) = (left, until) {
                return Err(Error::TimedOut(time));
            }
            if let Some(found) = self.sleep(left, &mut look)? {
                return Ok(Awaited::Found(found));
            }
        }
    }

    /// For who does not wait.
    fn look_once<T>(&mut self, mut look: impl FnMut() -> Look<T>) -> Result<Awaited<T>> {
        if let Some(found) = look()? {
            return Ok(Awaited::Found(found));
        }
        self.end(look).unwrap_or(Err(match self.role {
            Role::Producer => Error::Full,
            Role::Consumer => Error::Empty,
        }))
    }

    /// Looks for a moment, without the clock or anything else that is only of use to who waits for long: what comes at once
    /// shall not wait for that.
    #[inline]
    pub fn glance(&mut self, look: impl Fn() -> bool) -> bool {
        self.pace.caught_up();
        for _ in 0..self.spin.glances() {
            if look() {
                let (own, _) = sides(&self.mapping, self.role);
                self.rest.stayed_awake(own);
                return true;
            }
            spin_loop();
        }
        false
    }

    fn spin<T>(
        &mut self,
        until: Option<Instant>,
        mut look: impl FnMut() -> Look<T>,
    ) -> Option<std::result::Result<T, Lie>> {
        let (own, other) = sides(&self.mapping, self.role);
        let hopeless = || {
            other.is_closed()
                || self.peer.is_gone()
                || until.is_some_and(|until| Instant::now() >= until)
        };
        let found = self.spin.look(|| look().transpose(), hopeless);
        if found.is_some() {
            self.rest.stayed_awake(own);
        }
        found
    }

    /// If the other side does nothing any more: what it had done before, or how it ended.
    fn end<T>(&self, mut look: impl FnMut() -> Look<T>) -> Option<Result<Awaited<T>>> {
        let ended = match self.check() {
            Ok(()) => return None,
            Err(Error::Closed) => Ok(Awaited::Closed),
            Err(error) => Err(error),
        };
        Some(match look() {
            Ok(Some(found)) => Ok(Awaited::Found(found)),
            Ok(None) => ended,
            Err(lie) => Err(lie.into()),
        })
    }

    /// Announces that this side goes to sleep. Returns the other's bell, as Rest::lie_down does.
    fn announce(&mut self, how: How) -> u32 {
        let (own, other) = sides(&self.mapping, self.role);
        self.pace.gave_up();
        self.rest.lie_down(own, other, how, &Socket(&self.socket))
    }

    fn sleep<T>(
        &mut self,
        limit: Option<Duration>,
        mut look: impl FnMut() -> Look<T>,
    ) -> Result<Option<T>> {
        let seen = self.announce(How::Futex);
        let (own, other) = sides(&self.mapping, self.role);
        let found = look();
        let slept = match found {
            Ok(None) if !other.is_closed() => self.peer.sleep(seen, limit),
            _ => Ok(()),
        };
        self.rest.get_up(own);
        slept.map_err(Error::system("sleeping until the other end does something"))?;
        Ok(found?)
    }

    /// Whether to sleep until the socket can be read; not if the look after the announcement finds something, or an end.
    #[cfg(feature = "tokio")]
    pub fn lie_down<T>(&mut self, mut look: impl FnMut() -> Look<T>) -> Result<Option<Awaited<T>>> {
        self.announce(How::Socket);
        if let Some(found) = look()? {
            return Ok(Some(Awaited::Found(found)));
        }
        self.end(look).transpose()
    }

    /// Takes from the socket what wakes this side, and says whether that was all.
    #[cfg(feature = "tokio")]
    pub fn drain(&self) -> bool {
        let drained = super::socket::drain(&self.socket);
        if drained == Drained::HungUp {
            self.peer.has_hung_up();
        }
        drained != Drained::More
    }

    #[cfg(feature = "tokio")]
    pub fn get_up(&mut self) {
        let (own, _) = sides(&self.mapping, self.role);
        self.rest.get_up(own);
    }
}

/// Nothing more comes from this side, and the other learns it at once.
impl Drop for Link {
    fn drop(&mut self) {
        self.sides().0.close();
        self.call();
    }
}

/// This side's, and the other's.
#[inline]
fn sides(mapping: &Mapping, role: Role) -> (&Side, &Side) {
    match role {
        Role::Producer => (mapping.producer(), mapping.consumer()),
        Role::Consumer => (mapping.consumer(), mapping.producer()),
    }
}

struct Socket<'a>(&'a OwnedFd);

impl Bed for Socket<'_> {
    fn barrier_everywhere(&self) {
        // It can fail only before this process has registered, which is tried before a ring is set up without barriers.
        let _ = membarrier(MembarrierCommand::GlobalExpedited);
    }

    fn wake(&self, how: How, bell: &AtomicU32) {
        // The other side may be gone, or a message that wakes it may wait there already.
        let _ = match how {
            How::Futex => futex::wake(bell, futex::Flags::empty(), 1),
            How::Socket => {
                rustix::net::send(self.0, &[0], SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
            }
        };
    }
}

/// Whether this process may leave out barriers, as far as it is concerned.
pub(super) fn register() -> bool {
    let registered: std::result::Result<(), Errno> =
        membarrier(MembarrierCommand::RegisterGlobalExpedited)
            .and_then(|()| membarrier(MembarrierCommand::GlobalExpedited));
    registered.is_ok()
}
