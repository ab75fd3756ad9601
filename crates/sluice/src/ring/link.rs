// SPDX-License-Identifier: MIT OR Apache-2.0
//! What both sides of a ring have: the memory, the socket, and ways to wait for the other side and to wake it.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::SendFlags;
use rustix::thread::{MembarrierCommand, futex, membarrier};
use sluice_ring::sync::{AtomicU32, spin_loop};
use sluice_ring::{
    AdaptiveSpin, Backoff, Ctrl, Memory, Notifier, Parker, PeerState, ProtocolViolation,
    WakeMethod, Waker, peer_state,
};

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
    pub backoff: Backoff,
    spin: AdaptiveSpin,
    parker: Parker,
    notifier: Notifier,
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
pub(super) type Look<T> = std::result::Result<Option<T>, ProtocolViolation>;

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
            backoff: Backoff::default(),
            spin: AdaptiveSpin::new(spin),
            parker: Parker::new(registered),
            notifier: Notifier::new(registered),
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
    fn sides(&self) -> (&Ctrl, &Ctrl) {
        sides(&self.mapping, self.role)
    }

    /// Whether there is somebody who could take what this side gives.
    #[inline]
    pub fn check(&self) -> Result<()> {
        let (_, other) = self.sides();
        match peer_state(other, || self.peer.is_gone()) {
            PeerState::Active => Ok(()),
            PeerState::Closed => Err(Error::Closed),
            PeerState::Dead => Err(Error::Died),
        }
    }

    /// Wakes the other side if it sleeps. To be called after everything that it may wait for.
    #[inline]
    pub fn call(&mut self) {
        let (own, other) = sides(&self.mapping, self.role);
        self.notifier.notify(own, other, &Socket(&self.socket));
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
    pub fn spin_briefly(&mut self, look: impl Fn() -> bool) -> bool {
        self.backoff.pause();
        for _ in 0..self.spin.brief_iterations() {
            if look() {
                let (own, _) = sides(&self.mapping, self.role);
                self.parker.note_spin_success(own);
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
    ) -> Option<std::result::Result<T, ProtocolViolation>> {
        let (own, other) = sides(&self.mapping, self.role);
        let hopeless = || {
            other.is_closed()
                || self.peer.is_gone()
                || until.is_some_and(|until| Instant::now() >= until)
        };
        let found = self.spin.poll(|| look().transpose(), hopeless);
        if found.is_some() {
            self.parker.note_spin_success(own);
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
            Err(violation) => Err(violation.into()),
        })
    }

    /// Announces that this side goes to sleep. Returns the peer's wake_seq, as Parker::prepare_park does.
    fn announce(&mut self, method: WakeMethod) -> u32 {
        let (own, other) = sides(&self.mapping, self.role);
        self.backoff.reset();
        self.parker
            .prepare_park(own, other, method, &Socket(&self.socket))
    }

    fn sleep<T>(
        &mut self,
        limit: Option<Duration>,
        mut look: impl FnMut() -> Look<T>,
    ) -> Result<Option<T>> {
        let seen = self.announce(WakeMethod::Futex);
        let (own, other) = sides(&self.mapping, self.role);
        let found = look();
        let slept = match found {
            Ok(None) if !other.is_closed() => self.peer.sleep(seen, limit),
            _ => Ok(()),
        };
        self.parker.finish_park(own);
        slept.map_err(Error::system("sleeping until the other end does something"))?;
        Ok(found?)
    }

    /// Whether to sleep until the socket can be read; not if the look after the announcement finds something, or an end.
    #[cfg(feature = "tokio")]
    pub fn lie_down<T>(&mut self, mut look: impl FnMut() -> Look<T>) -> Result<Option<Awaited<T>>> {
        self.announce(WakeMethod::Socket);
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
        self.parker.finish_park(own);
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
fn sides(mapping: &Mapping, role: Role) -> (&Ctrl, &Ctrl) {
    match role {
        Role::Producer => (mapping.producer(), mapping.consumer()),
        Role::Consumer => (mapping.consumer(), mapping.producer()),
    }
}

struct Socket<'a>(&'a OwnedFd);

/// How often a wake-up is tried for which the system has no memory at the moment, and what lies between.
const WAKE_TRIALS: u32 = 10;
const WAKE_PAUSE: Duration = Duration::from_millis(1);

/// Far longer than a processor keeps a store to itself.
const STORES_VISIBLE: Duration = Duration::from_millis(10);

impl Waker for Socket<'_> {
    fn heavy_barrier(&self) -> bool {
        let issued = membarrier(MembarrierCommand::GlobalExpedited).is_ok();
        if !issued {
            // It worked when the ring was set up, so a filter of system calls has come since.
            thread::sleep(STORES_VISIBLE);
        }
        issued
    }

    fn wake(&self, method: WakeMethod, wake_seq: &AtomicU32) -> bool {
        match method {
            // It fails only for an address that is not mapped.
            WakeMethod::Futex => futex::wake(wake_seq, futex::Flags::empty(), 1).is_ok(),
            WakeMethod::Socket => (0..WAKE_TRIALS).any(|trial| {
                if trial > 0 {
                    thread::sleep(WAKE_PAUSE);
                }
                send_wake_up(self.0)
            }),
        }
    }
}

/// Whether the peer's end is readable now, or gone.
fn send_wake_up(socket: &OwnedFd) -> bool {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    // AGAIN: enough messages wait there already. PIPE, CONNRESET: nobody is there to be woken.
    !matches!(
        rustix::net::send(socket, &[0], flags),
        Err(Errno::NOBUFS | Errno::NOMEM | Errno::INTR)
    )
}

/// Whether this process may leave out barriers, as far as it is concerned.
pub(super) fn register() -> bool {
    let registered: std::result::Result<(), Errno> =
        membarrier(MembarrierCommand::RegisterGlobalExpedited)
            .and_then(|()| membarrier(MembarrierCommand::GlobalExpedited));
    registered.is_ok()
}
