// SPDX-License-Identifier: MIT OR Apache-2.0
//! The common part of both sides of a ring: the memory, the carrier, waiting for the peer and waking it.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use sluice_ring::sync::{AtomicU32, Ordering};
use sluice_ring::{
    AdaptiveSpin, Backoff, Ctrl, End, Memory as _, Notifier, Parker, PeerState, ProtocolViolation,
    WakeMethod,
};

use super::carrier::{Carrier, Drained};
use super::error::{SendError, WaitError};
use super::inline::InlineAddresses;
use super::options::SideOptions;
use super::role::Role;
use crate::shared::device::Slept;
use crate::shared::mapping::Mapping;
use crate::shared::setup_process::SetupProcess;
use crate::system_error::SystemError;
use crate::timeout::Timeout;
use crate::wait::Wait;

#[derive(Debug)]
pub(super) struct Connection {
    carrier: Carrier,
    mapping: Mapping,
    role: Role,
    /// The process that set up this side. Its children must not use it.
    process: SetupProcess,
    /// Whether dropping it leaves the ring unclosed.
    aborts: bool,
    /// As Carrier::is_hung_up(), for the check of each record.
    hung_up: bool,
    pub backoff: Backoff,
    spin: AdaptiveSpin,
    parker: Parker,
    /// The peer's wake_seq before the last announced sleep.
    announced: u32,
    pub notifier: Notifier,
}

/// The result of a wait.
pub(super) enum Awaited<T> {
    Found(T),
    /// The peer closed the ring.
    Closed,
}

/// The result of a poll.
pub(super) type Polled<T> = Result<Option<T>, ProtocolViolation>;

impl Connection {
    pub fn new(
        carrier: Carrier,
        mapping: Mapping,
        role: Role,
        parker: Parker,
        notifier: Notifier,
        options: &SideOptions,
    ) -> Self {
        Self {
            carrier,
            mapping,
            role,
            process: SetupProcess::current(),
            aborts: false,
            hung_up: false,
            backoff: Backoff::new(!options.spin_limit.is_zero()),
            spin: AdaptiveSpin::new(options.spin_limit),
            parker,
            announced: 0,
            notifier,
        }
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.carrier.fd()
    }

    pub fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// Whether this process has set up the side.
    #[inline]
    pub fn is_owned(&self) -> bool {
        self.process.is_current()
    }

    /// Fails if the peer has ended, as far as known without a system call.
    #[inline]
    pub fn check(&self, peer: &Ctrl) -> Result<(), SendError> {
        match (peer.end(), self.hung_up) {
            (None, false) => Ok(()),
            (end, _) => Err(self.end_error(end)),
        }
    }

    /// For the end that the peer's control structure says, or a hang-up.
    #[cold]
    fn end_error(&self, end: Option<End>) -> SendError {
        match end.map(|end| self.carrier.interpret(end)) {
            Some(End::Closed) => SendError::Closed,
            Some(End::Destroyed) => SendError::Destroyed,
            Some(End::Died) => SendError::PeerDied,
            None => self.carrier.hung_up_error(),
        }
    }

    pub fn has_peer(&self) -> Result<bool, SystemError> {
        self.carrier
            .has_peer(self.role)
            .map_err(|error| SystemError::new("querying the endpoint", error))
    }

    /// For a wait that has ended by its limit.
    pub fn timeout(&self, limit: Duration) -> Timeout {
        match self.role {
            Role::Producer => Timeout::sending(limit, self.fd()),
            Role::Consumer => Timeout::receiving(limit, self.fd()),
        }
    }

    /// Whether the peer has ended. Checks a socket at most once per clock tick.
    pub fn is_closed(&mut self) -> bool {
        self.peer_state() != PeerState::Active
    }

    fn peer_state(&mut self) -> PeerState {
        let (own, peer) = self.role.ctrls(&self.mapping);
        let state = self.carrier.peer_state(own, peer);
        self.hung_up = self.carrier.is_hung_up();
        state
    }

    /// Drops this side without closing the ring, so that the peer gets an error.
    pub fn abort(mut self) {
        self.aborts = true;
    }

    /// For inline functions, which test in `attention` whether they have to call the library.
    pub fn inline_addresses(&self, attention: *const AtomicU32) -> InlineAddresses {
        let (own, _) = self.role.ctrls(&self.mapping);
        let (process, mark) = self.process.word_and_mark();
        InlineAddresses {
            data: self.mapping.bytes(0),
            mask: self.mapping.capacity().bytes() - 1,
            process,
            mark,
            pos: &raw const own.pos,
            attention,
        }
    }

    /// Whether a hang-up, or a hidden end, was found.
    #[inline]
    pub fn is_hung_up(&self) -> bool {
        self.hung_up
    }

    /// Wakes the peer if it sleeps. Must be called after every change that the peer may wait for.
    #[inline]
    pub fn notify(&mut self) {
        let (own, peer) = self.role.ctrls(&self.mapping);
        self.notifier.notify(own, peer, &self.carrier);
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
        let mut method = self.carrier.first_method();
        if let Some(found) = self.spin(deadline.map(|(until, _)| until), &mut poll) {
            return found.map(Awaited::Found).map_err(WaitError::from);
        }
        loop {
            if let Some(end) = self.end(&mut poll) {
                return end;
            }
            let left = deadline.map(|(until, _)| until.saturating_duration_since(Instant::now()));
            if let (Some(Duration::ZERO), Some((_, time))) = (left, deadline) {
                return Err(WaitError::TimedOut(self.timeout(time)));
            }
            let (found, slept) = self.sleep(method, left, &mut poll)?;
            if slept == Slept::TimedOut {
                method = WakeMethod::Descriptor;
            }
            let found = match found {
                None => poll()?,
                found => found,
            };
            if let Some(found) = found {
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
        let found = self.spin.poll_briefly(poll);
        if found {
            let (own, _) = self.role.ctrls(&self.mapping);
            self.parker.note_spin_success(own);
        }
        found
    }

    fn spin<T>(
        &mut self,
        until: Option<Instant>,
        mut poll: impl FnMut() -> Polled<T>,
    ) -> Option<Result<T, ProtocolViolation>> {
        let (own, peer) = self.role.ctrls(&self.mapping);
        let is_hopeless = || {
            self.carrier.peer_state(own, peer) != PeerState::Active
                || until.is_some_and(|until| Instant::now() >= until)
        };
        let found = self.spin.poll(|| poll().transpose(), is_hopeless);
        if found.is_some() {
            self.parker.note_spin_success(own);
        }
        found
    }

    /// If the peer has ended: a last poll, or that result.
    fn end<T>(
        &mut self,
        mut poll: impl FnMut() -> Polled<T>,
    ) -> Option<Result<Awaited<T>, WaitError>> {
        let ended = match self.peer_state() {
            PeerState::Active => return None,
            PeerState::Closed => Ok(Awaited::Closed),
            PeerState::Dead => Err(WaitError::PeerDied),
            PeerState::Destroyed => Err(WaitError::Destroyed),
            PeerState::Hidden => Err(ProtocolViolation::EndHidden.into()),
            PeerState::Detached => {
                let ended = io::Error::from_raw_os_error(libc::EPIPE);
                Err(SystemError::new("waiting for the peer", ended).into())
            }
        };
        Some(match poll() {
            Ok(Some(found)) => Ok(Awaited::Found(found)),
            Ok(None) => ended,
            Err(violation) => Err(violation.into()),
        })
    }

    /// Announces a sleep of this side. Returns the peer's wake_seq, as Parker::prepare_park() does.
    fn prepare_park(&mut self, method: WakeMethod) -> Result<u32, WaitError> {
        if !self.is_owned() {
            return Err(WaitError::Forked);
        }
        self.backoff.reset();
        let (own, peer) = self.role.ctrls(&self.mapping);
        self.announced = self.parker.prepare_park(own, peer, method, &self.carrier);
        Ok(self.announced)
    }

    /// Returns what the poll after the announcement found, and how the sleep ended.
    fn sleep<T>(
        &mut self,
        method: WakeMethod,
        limit: Option<Duration>,
        mut poll: impl FnMut() -> Polled<T>,
    ) -> Result<(Option<T>, Slept), WaitError> {
        let seq = self.prepare_park(method)?;
        let (own, peer) = self.role.ctrls(&self.mapping);
        let found = poll();
        let slept = match found {
            Ok(None) if !peer.is_closed() => self.carrier.sleep(method, own, peer, seq, limit),
            _ => Ok(Slept::Woken),
        };
        self.parker.finish_park(own);
        if method == WakeMethod::Descriptor {
            self.drain();
        }
        let slept = slept.map_err(|error| SystemError::new("waiting for the peer", error));
        Ok((found?, slept?))
    }

    /// Announces a sleep until the descriptor is readable. Returns none to sleep, or the result of the poll after the announcement.
    pub fn prepare_wait<T>(
        &mut self,
        mut poll: impl FnMut() -> Polled<T>,
    ) -> Result<Option<Awaited<T>>, WaitError> {
        self.prepare_park(WakeMethod::Descriptor)?;
        if let Some(found) = poll()? {
            return Ok(Some(Awaited::Found(found)));
        }
        self.end(poll).transpose()
    }

    /// Takes wake-ups from the descriptor, up to a limit. Returns whether it took all.
    pub fn drain(&mut self) -> bool {
        if !self.is_owned() {
            return true;
        }
        let (own, peer) = self.role.ctrls(&self.mapping);
        self.parker.acknowledge(own, peer);
        let drained = self.carrier.drain();
        self.hung_up = self.carrier.is_hung_up();
        drained != Drained::More
    }

    /// Follows prepare_wait().
    pub fn finish_wait(&mut self) {
        if !self.is_owned() {
            return;
        }
        let (own, peer) = self.role.ctrls(&self.mapping);
        self.parker.finish_park(own);
        if peer.wake_seq.load(Ordering::Relaxed) == self.announced {
            self.carrier.check_hidden_end(own, peer);
        }
    }
}

/// Closes the ring and wakes the peer.
impl Drop for Connection {
    fn drop(&mut self) {
        // In a forked child the drop has no effect.
        if self.is_owned() && !self.aborts {
            let (own, _) = self.role.ctrls(&self.mapping);
            own.close();
            self.notify();
            self.carrier.detach();
        }
    }
}
