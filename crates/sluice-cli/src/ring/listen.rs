// SPDX-License-Identifier: MIT OR Apache-2.0
//! The socket of the listening side. It is removed after the wait, also when a signal terminates the command.

use std::fmt;
use std::fs::{self, Permissions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use sluice::ring::{Listener, SetupError, Socket};

use super::handshakes::Handshakes;
use crate::signals::termination;

/// A listener that defers termination signals to its drop. The fields are dropped in this order: the socket is removed before a
/// pending signal terminates the process.
pub struct SignalSafeListener {
    listener: Listener,
    signals: DeferredSignals,
}

pub enum AcceptOutcome<T> {
    Peer(T),
    Timeout,
    Signal,
}

struct Events {
    signal: bool,
    connection: bool,
    handshake: bool,
}

impl SignalSafeListener {
    /// Must be called before other threads start, because threads inherit the signal mask. `other_users`: whether other users may
    /// connect.
    pub fn bind(path: &Path, other_users: bool) -> Result<Self> {
        let signals = DeferredSignals::new().context("cannot defer signals")?;
        let listener = bind(path)?;
        if other_users {
            let failed = || format!("cannot make {} accessible to other users", path.display());
            fs::set_permissions(path, Permissions::from_mode(0o666)).with_context(failed)?;
        }
        Ok(Self { listener, signals })
    }

    /// Waits until the deadline for the first peer with which `set_up` succeeds, and rejects the others.
    pub fn accept<T: Send>(
        &self,
        deadline: Option<Instant>,
        set_up: impl Fn(Socket) -> Result<T, SetupError> + Sync,
    ) -> Result<AcceptOutcome<T>> {
        let set_up = &set_up;
        thread::scope(|threads| {
            let mut handshakes = Handshakes::new()?;
            loop {
                let events = self.wait(&handshakes, deadline)?;
                if events.signal {
                    return Ok(AcceptOutcome::Signal);
                }
                if events.handshake {
                    if let Some(side) = handshakes.finished()? {
                        return Ok(AcceptOutcome::Peer(side));
                    }
                }
                if events.connection {
                    handshakes.start(threads, self.listener.accept()?, set_up)?;
                }
                if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                    return Ok(AcceptOutcome::Timeout);
                }
            }
        })
    }

    fn wait<T>(&self, handshakes: &Handshakes<T>, deadline: Option<Instant>) -> Result<Events> {
        let timeout = match deadline {
            None => PollTimeout::NONE,
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                // Rounded up, so that poll(2) is not called in a loop during the last millisecond.
                let left = left.as_millis().saturating_add(u128::from(!left.is_zero()));
                PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
            }
        };
        let mut fds = [
            PollFd::new(self.signals.descriptor.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.listener.as_fd(), PollFlags::POLLIN),
            PollFd::new(handshakes.as_fd(), PollFlags::POLLIN),
        ];
        poll(&mut fds, timeout).context("cannot wait for the other side")?;
        let [signal, connection, handshake] = fds.map(|fd| fd.any().unwrap_or(true));
        Ok(Events {
            signal,
            connection,
            handshake,
        })
    }
}

fn bind(path: &Path) -> Result<Listener> {
    Listener::bind(path).map_err(|error| match is_in_use(&error) && is_socket(path) {
        true => PathInUse(path.to_owned()).into(),
        false => error.into(),
    })
}

/// Another process listens at the path.
#[derive(Debug)]
pub struct PathInUse(PathBuf);

impl fmt::Display for PathInUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.0.display();
        write!(
            f,
            "another process listens at {path}; use --connect if it is the other side, or another path"
        )
    }
}

impl std::error::Error for PathInUse {}

fn is_in_use(error: &SetupError) -> bool {
    matches!(error, SetupError::Listen { source, .. } if source.kind() == io::ErrorKind::AddrInUse)
}

fn is_socket(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket())
}

/// Blocks the termination signals until it is dropped, and makes them readable from a descriptor.
struct DeferredSignals {
    descriptor: SignalFd,
    previous_mask: SigSet,
}

impl DeferredSignals {
    fn new() -> nix::Result<Self> {
        let signals = termination();
        let previous_mask = signals.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        Ok(Self {
            descriptor: SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC)?,
            previous_mask,
        })
    }
}

impl Drop for DeferredSignals {
    fn drop(&mut self) {
        // It cannot fail with a valid mask.
        let _ = self.previous_mask.thread_set_mask();
    }
}
