// SPDX-License-Identifier: MIT OR Apache-2.0
//! The common part of both sides of a ring: the memory, the socket, waiting for the peer and waking it.

use std::os::fd::OwnedFd;
use std::process;
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

use super::error::{SendError, SystemError, WaitError};
use super::handshake::Role;
use super::hang_up::HangUp;
use super::mapping::Mapping;
use super::socket::{self, Drained};

/// The limit of a sleep in FUTEX_WAIT, where a wake-up is cheap and a hang-up is not detected. After that a side sleeps on
/// the socket.
const FUTEX_SLEEP: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct Connection {
    socket: OwnedFd,
    mapping: Mapping,
    role: Role,
    /// The process that set up this side. Its children must not use it.
    owner: u32,
    /// Whether dropping it leaves the ring unclosed.
    aborts: bool,
    hang_up: HangUp,
    pub backoff: Backoff,
    spin: AdaptiveSpin,
    parker: Parker,
    notifier: Notifier,
}

/// The time for which a call may wait.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wait {
    Never,
    For(Duration),
    Forever,
}

impl Wait {
    #[inline]
    pub fn is_some(self) -> bool {
        !matches!(self, Self::Never)
    }
}

/// The result of a wait.
pub(super) enum Awaited<T> {
    Found(T),
    /// The peer closed the ring.
    Closed,
}

/// The result of a poll.
pub(super) type Polled<T> = Result<Option<T>, ProtocolViolation>;

/// The end of a sleep.
enum Slept<T> {
    Found(T),
    Woken,
    TimedOut,
}

impl Connection {
    /// `registered`: both sides are registered with membarrier(2).
    pub fn new(
        socket: OwnedFd,
        mapping: Mapping,
        role: Role,
        registered: bool,
        spin: AdaptiveSpin,
        backoff: Backoff,
    ) -> Self {
        Self {
            socket,
            mapping,
            role,
            owner: process::id(),
            aborts: false,
            hang_up: HangUp::new(),
            backoff,
            spin,
            parker: Parker::new(registered),
            notifier: Notifier::new(registered),
        }
    }

    pub fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    pub fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// Fails if the peer has closed the ring or died, as far as known without a system call.
    #[inline]
    pub fn check(&self) -> Result<(), SendError> {
        let (_, peer) = ctrls(&self.mapping, self.role);
        match peer_state(peer, || self.hang_up.is_known()) {
            PeerState::Active => Ok(()),
            PeerState::Closed => Err(SendError::Closed),
            PeerState::Dead => Err(SendError::PeerDied),
        }
    }

    /// Whether the peer has closed the ring or died. Checks the socket at most once per clock tick.
    pub fn is_closed(&mut self) -> bool {
        let (_, peer) = ctrls(&self.mapping, self.role);
        peer_state(peer, || self.hang_up.look(&self.socket)) != PeerState::Active
    }

    /// Drops this side without closing the ring, so that the peer gets an error.
    pub fn abort(mut self) {
        self.aborts = true;
    }

    /// Wakes the peer if it sleeps. Must be called after every change that the peer may wait for.
    #[inline]
    pub fn notify(&mut self) {
        let (own, peer) = ctrls(&self.mapping, self.role);
        self.notifier.notify(own, peer, &System(&self.socket));
    }

    /// Polls until something is found, the peer has closed the ring, or the time is over.
    pub fn wait<T>(
        &mut self,
        wait: Wait,
        poll: impl FnMut() -> Polled<T>,
    ) -> Result<Awaited<T>, WaitError> {
        let limit = match wait {
            Wait::Never => return self.poll_once(poll),
            Wait::For(time) => Some(time),
            Wait::Forever => None,
        };
        let began = Instant::now();
        let deadline = limit.and_then(|time| Some((began.checked_add(time)?, time)));
        let awaited = self.wait_until(deadline, poll);
        match &awaited {
            Ok(Awaited::Found(_)) => self.spin.adapt(began.elapsed()),
            // The total duration is unknown.
            Err(WaitError::TimedOut(_)) => self.spin.adapt(Duration::MAX),
            _ => {}
        }
        awaited
    }

    /// With a deadline and its timeout. Spins only before the first sleep.
    fn wait_until<T>(
        &mut self,
        deadline: Option<(Instant, Duration)>,
        mut poll: impl FnMut() -> Polled<T>,
    ) -> Result<Awaited<T>, WaitError> {
        let mut method = WakeMethod::Futex;
        if let Some(found) = self.spin(deadline.map(|(until, _)| until), &mut poll) {
            return found.map(Awaited::Found).map_err(WaitError::from);
        }
        loop {
            if let Some(end) = self.end(&mut poll) {
                return end;
            }
            let left = deadline.map(|(until, _)| until.saturating_duration_since(Instant::now()));
            if let (Some(Duration::ZERO), Some((_, time))) = (left, deadline) {
                return Err(WaitError::TimedOut(time));
            }
            method = match self.sleep(method, left, &mut poll)? {
                Slept::Found(found) => return Ok(Awaited::Found(found)),
                Slept::Woken => method,
                Slept::TimedOut => WakeMethod::Socket,
            };
            if let Some(found) = poll()? {
                return Ok(Awaited::Found(found));
            }
        }
    }

    fn poll_once<T>(
        &mut self,
        mut poll: impl FnMut() -> Polled<T>,
    ) -> Result<Awaited<T>, WaitError> {
        if let Some(found) = poll()? {
            return Ok(Awaited::Found(found));
        }
        self.end(poll).unwrap_or(Err(WaitError::WouldBlock))
    }

    /// Polls a few times without the clock or other checks of a longer wait, so that these do not delay an immediate result.
    /// `poll` gets the number of earlier polls.
    #[inline]
    pub fn spin_briefly(&mut self, poll: impl Fn(u32) -> bool) -> bool {
        self.backoff.pause();
        for iteration in 0..self.spin.brief_iterations() {
            if poll(iteration) {
                let (own, _) = ctrls(&self.mapping, self.role);
                self.parker.note_spin_success(own);
                self.spin.note_brief_success();
                return true;
            }
            spin_loop();
        }
        false
    }

    fn spin<T>(
        &mut self,
        until: Option<Instant>,
        mut poll: impl FnMut() -> Polled<T>,
    ) -> Option<Result<T, ProtocolViolation>> {
        let (own, peer) = ctrls(&self.mapping, self.role);
        let is_hopeless = || {
            peer.is_closed()
                || self.hang_up.look(&self.socket)
                || until.is_some_and(|until| Instant::now() >= until)
        };
        let found = self.spin.poll(|| poll().transpose(), is_hopeless);
        if found.is_some() {
            self.parker.note_spin_success(own);
        }
        found
    }

    /// If the peer has closed the ring or died: a last poll, or that result.
    fn end<T>(
        &mut self,
        mut poll: impl FnMut() -> Polled<T>,
    ) -> Option<Result<Awaited<T>, WaitError>> {
        let (_, peer) = ctrls(&self.mapping, self.role);
        let ended = match peer_state(peer, || self.hang_up.look(&self.socket)) {
            PeerState::Active => return None,
            PeerState::Closed => Ok(Awaited::Closed),
            PeerState::Dead => Err(WaitError::PeerDied),
        };
        Some(match poll() {
            Ok(Some(found)) => Ok(Awaited::Found(found)),
            Ok(None) => ended,
            Err(violation) => Err(violation.into()),
        })
    }

    /// Announces a sleep of this side. Returns the peer's wake_seq, as Parker::prepare_park() does.
    fn prepare_park(&mut self, method: WakeMethod) -> Result<u32, WaitError> {
        if process::id() != self.owner {
            return Err(WaitError::Forked);
        }
        self.backoff.reset();
        let (own, peer) = ctrls(&self.mapping, self.role);
        let system = System(&self.socket);
        Ok(self.parker.prepare_park(own, peer, method, &system))
    }

    fn sleep<T>(
        &mut self,
        method: WakeMethod,
        limit: Option<Duration>,
        mut poll: impl FnMut() -> Polled<T>,
    ) -> Result<Slept<T>, WaitError> {
        let seq = self.prepare_park(method)?;
        let (own, peer) = ctrls(&self.mapping, self.role);
        let found = poll();
        let slept = match (&found, method) {
            (Ok(None), _) if peer.is_closed() => Ok(Slept::Woken),
            (Ok(None), WakeMethod::Futex) => sleep_on_futex(&peer.wake_seq, seq, limit),
            (Ok(None), WakeMethod::Socket) => sleep_on_socket(&self.socket, limit),
            _ => Ok(Slept::Woken),
        };
        self.parker.finish_park(own);
        if method == WakeMethod::Socket {
            self.drain();
        }
        match found? {
            Some(found) => Ok(Slept::Found(found)),
            None => slept.map_err(|errno| {
                WaitError::System(SystemError::new("waiting for the peer", errno))
            }),
        }
    }

    /// Announces a sleep on the socket. Returns none to sleep, or the result of the poll after the announcement.
    pub fn prepare_wait<T>(
        &mut self,
        mut poll: impl FnMut() -> Polled<T>,
    ) -> Result<Option<Awaited<T>>, WaitError> {
        self.prepare_park(WakeMethod::Socket)?;
        if let Some(found) = poll()? {
            return Ok(Some(Awaited::Found(found)));
        }
        self.end(poll).transpose()
    }

    /// Reads wake-ups from the socket, up to a limit. Returns whether the socket is empty.
    pub fn drain(&mut self) -> bool {
        let drained = socket::drain(&self.socket);
        if drained == Drained::HungUp {
            self.hang_up.note();
        }
        drained != Drained::More
    }

    pub fn finish_wait(&mut self) {
        let (own, _) = ctrls(&self.mapping, self.role);
        self.parker.finish_park(own);
    }
}

/// Closes the ring and wakes the peer.
impl Drop for Connection {
    fn drop(&mut self) {
        // In a forked child the drop has no effect.
        if process::id() == self.owner && !self.aborts {
            let (own, _) = ctrls(&self.mapping, self.role);
            own.close();
            self.notify();
        }
    }
}

fn sleep_on_futex<T>(
    wake_seq: &AtomicU32,
    seq: u32,
    limit: Option<Duration>,
) -> Result<Slept<T>, Errno> {
    let limit = limit.map_or(FUTEX_SLEEP, |limit| limit.min(FUTEX_SLEEP));
    let timeout = futex::Timespec::try_from(limit).map_err(|_| Errno::INVAL)?;
    match futex::wait(wake_seq, futex::Flags::empty(), seq, Some(&timeout)) {
        Ok(()) | Err(Errno::AGAIN | Errno::INTR) => Ok(Slept::Woken),
        Err(Errno::TIMEDOUT) => Ok(Slept::TimedOut),
        Err(errno) => Err(errno),
    }
}

fn sleep_on_socket<T>(socket: &OwnedFd, limit: Option<Duration>) -> Result<Slept<T>, Errno> {
    match socket::poll_readable(socket, limit) {
        Ok(_) | Err(Errno::INTR) => Ok(Slept::Woken),
        Err(errno) => Err(errno),
    }
}

/// Returns the control structures of this side and of the peer.
#[inline]
fn ctrls(mapping: &Mapping, role: Role) -> (&Ctrl, &Ctrl) {
    match role {
        Role::Producer => (mapping.producer(), mapping.consumer()),
        Role::Consumer => (mapping.consumer(), mapping.producer()),
    }
}

struct System<'a>(&'a OwnedFd);

/// The number of attempts of a wake-up that fails for lack of memory, and the pause between them.
const WAKE_TRIALS: u32 = 10;
const WAKE_PAUSE: Duration = Duration::from_millis(1);

/// Far longer than a store stays in a processor's store buffer.
const STORES_VISIBLE: Duration = Duration::from_millis(10);

impl Waker for System<'_> {
    fn heavy_barrier(&self) -> bool {
        let issued = membarrier(MembarrierCommand::GlobalExpedited).is_ok();
        if !issued {
            // It succeeded at setup, so a system call filter was installed since.
            thread::sleep(STORES_VISIBLE);
        }
        issued
    }

    fn wake(&self, method: WakeMethod, wake_seq: &AtomicU32) -> bool {
        match method {
            // It fails only for an unmapped address.
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

/// Returns false if a retry may help.
fn send_wake_up(socket: &OwnedFd) -> bool {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    // AGAIN: other messages are queued already. PIPE, CONNRESET: the peer is gone.
    !matches!(
        rustix::net::send(socket, &[0], flags),
        Err(Errno::NOBUFS | Errno::NOMEM | Errno::INTR)
    )
}

/// Whether this process supports asymmetric barriers.
pub(super) fn register() -> bool {
    let registered: Result<(), Errno> = membarrier(MembarrierCommand::RegisterGlobalExpedited)
        .and_then(|()| membarrier(MembarrierCommand::GlobalExpedited));
    registered.is_ok()
}
