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
use sluice::ring::{self, Listener, Socket};

/// Between making a socket and listening at it nobody needs so long.
const MOMENT: Duration = Duration::from_millis(100);

/// Dropped in this order: the signal that ended the waiting ends the process when the socket is gone.
pub struct Listening {
    listener: Listener,
    deferred: Deferred,
}

/// What ended the waiting.
pub enum Caller {
    Came(Socket),
    Nobody,
    Signal,
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

    /// Waits for somebody to connect, until then at most.
    pub fn wait(&self, until: Option<Instant>) -> Result<Caller> {
        loop {
            let timeout = match until {
                None => PollTimeout::NONE,
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    // Rounded up, so that it is not asked again and again in the last millisecond.
                    let left = left.as_millis().saturating_add(u128::from(!left.is_zero()));
                    PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
                }
            };
            let mut asked = [
                PollFd::new(self.listener.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.deferred.descriptor.as_fd(), PollFlags::POLLIN),
            ];
            poll(&mut asked, timeout).context("cannot wait for the other side")?;
            let [caller, signal] = asked.map(|asked| asked.any().unwrap_or(true));
            if signal {
                return Ok(Caller::Signal);
            }
            if caller {
                return Ok(Caller::Came(self.listener.accept()?));
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return Ok(Caller::Nobody);
            }
        }
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

fn is_taken(error: &ring::Error) -> bool {
    matches!(error, ring::Error::Listen { source, .. } if source.kind() == io::ErrorKind::AddrInUse)
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
    matches!(Socket::connect(path), Err(ring::Error::Connect { source, .. }) if refused(&source))
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
