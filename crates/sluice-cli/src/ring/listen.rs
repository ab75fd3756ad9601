// SPDX-License-Identifier: MIT OR Apache-2.0
//! The socket of the side that listens: there while it waits and gone when it does not, also when a signal ends the command.

use std::fmt;
use std::fs::{self, Permissions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::ptr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use sluice::ring::{Listener, SetupError, Socket};

use super::handshakes::Handshakes;

/// Between making a socket and listening at it nobody needs so long.
const MOMENT: Duration = Duration::from_millis(100);

/// Dropped in this order: the signal that ended the waiting ends the process when the socket is gone.
pub struct Listening {
    listener: Listener,
    deferred: Deferred,
}

/// What ended the waiting.
pub enum Accepted<T> {
    Peer(T),
    Nobody,
    Signal,
}

/// What there is to do.
struct Events {
    signal: bool,
    connection: bool,
    handshake: bool,
}

impl Listening {
    /// To be called while there is no other thread. `open`: for other users to connect.
    pub fn start(path: &Path, open: bool) -> Result<Self> {
        let deferred = Deferred::new().context("cannot watch for signals")?;
        let listener = bind(path)?;
        if open {
            let failed = || format!("cannot let other users connect to {}", path.display());
            fs::set_permissions(path, Permissions::from_mode(0o666)).with_context(failed)?;
        }
        Ok(Self { listener, deferred })
    }

    /// Waits for the first peer with which the ring can be set up, until then at most, and turns the others away.
    pub fn accept<T: Send>(
        &self,
        until: Option<Instant>,
        set_up: impl Fn(Socket) -> Result<T, SetupError> + Sync,
    ) -> Result<Accepted<T>> {
        let set_up = &set_up;
        thread::scope(|threads| {
            let mut handshakes = Handshakes::new()?;
            loop {
                let events = self.wait(&handshakes, until)?;
                if events.signal {
                    return Ok(Accepted::Signal);
                }
                if events.handshake {
                    if let Some(side) = handshakes.finished()? {
                        return Ok(Accepted::Peer(side));
                    }
                }
                if events.connection {
                    handshakes.start(threads, self.listener.accept()?, set_up)?;
                }
                if until.is_some_and(|until| Instant::now() >= until) {
                    return Ok(Accepted::Nobody);
                }
            }
        })
    }

    fn wait<T>(&self, handshakes: &Handshakes<T>, until: Option<Instant>) -> Result<Events> {
        let timeout = match until {
            None => PollTimeout::NONE,
            Some(until) => {
                let left = until.saturating_duration_since(Instant::now());
                // Rounded up, so that the last millisecond is not spent polling.
                let left = left.as_millis().saturating_add(u128::from(!left.is_zero()));
                PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
            }
        };
        let mut asked = [
            PollFd::new(self.deferred.descriptor.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.listener.as_fd(), PollFlags::POLLIN),
            PollFd::new(handshakes.as_fd(), PollFlags::POLLIN),
        ];
        poll(&mut asked, timeout).context("cannot wait for the other side")?;
        let [signal, connection, handshake] = asked.map(|asked| asked.any().unwrap_or(true));
        Ok(Events {
            signal,
            connection,
            handshake,
        })
    }
}

fn bind(path: &Path) -> Result<Listener> {
    let bound = match Listener::bind(path) {
        Err(error) if is_taken(&error) && is_left_behind(path) => {
            // If it has just gone, so much the better.
            let _ = fs::remove_file(path);
            Listener::bind(path)
        }
        other => other,
    };
    bound.map_err(|error| match is_taken(&error) && is_socket(path) {
        true => Taken(path.to_owned()).into(),
        false => error.into(),
    })
}

/// Somebody else listens there.
#[derive(Debug)]
pub struct Taken(PathBuf);

impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.0.display();
        write!(
            f,
            "somebody listens at {path} already; if that is the other side, give --connect here, otherwise meet at another path"
        )
    }
}

impl std::error::Error for Taken {}

fn is_taken(error: &SetupError) -> bool {
    matches!(error, SetupError::Listen { source, .. } if source.kind() == io::ErrorKind::AddrInUse)
}

fn is_socket(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket())
}

/// Whether nobody listens at this socket, and is not about to: its process was killed.
fn is_left_behind(path: &Path) -> bool {
    is_socket(path) && refuses(path) && {
        thread::sleep(MOMENT);
        refuses(path)
    }
}

fn refuses(path: &Path) -> bool {
    let refused = |source: &io::Error| source.kind() == io::ErrorKind::ConnectionRefused;
    matches!(Socket::connect(path), Err(SetupError::Connect { source, .. }) if refused(&source))
}

/// Signals that would end the process wait while this is there.
struct Deferred {
    descriptor: SignalFd,
    before: SigSet,
}

impl Deferred {
    fn new() -> nix::Result<Self> {
        let endings = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM];
        let signals: SigSet = endings
            .into_iter()
            .filter(|&signal| !is_ignored(signal))
            .collect();
        let before = signals.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        Ok(Self {
            descriptor: SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC)?,
            before,
        })
    }
}

impl Drop for Deferred {
    fn drop(&mut self) {
        // It fails only for arguments that make no sense.
        let _ = self.before.thread_set_mask();
    }
}

/// As under nohup(1): such a signal would wait, too, and end what it was not to end.
fn is_ignored(signal: Signal) -> bool {
    // SAFETY: zeroes are a value of it.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: nothing is changed, and there is room for what is asked.
    let asked = unsafe { libc::sigaction(signal as i32, ptr::null(), &mut action) };
    asked == 0 && action.sa_sigaction == libc::SIG_IGN
}
