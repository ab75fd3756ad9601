// SPDX-License-Identifier: MIT OR Apache-2.0
//! The handshakes with all connected peers, each in a thread of its own, so that a silent peer does not delay others.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Scope;

use anyhow::{Context, Result};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::socket::{Shutdown, shutdown};
use sluice::ring::{SetupError, Socket};

use crate::output;

/// The limit of concurrent handshakes. Beyond it the oldest is aborted: a regular peer finishes within milliseconds.
const MAX_PENDING: usize = 32;

/// The number of rejected peers that are reported individually.
const MAX_REPORTED: u32 = 5;

type Outcome<T> = (u64, Result<T, SetupError>);

pub struct Handshakes<T> {
    /// Readable when a handshake has finished.
    finished: Arc<EventFd>,
    sender: Sender<Outcome<T>>,
    receiver: Receiver<Outcome<T>>,
    /// Numbered sockets, the oldest first.
    pending: VecDeque<(u64, OwnedFd)>,
    started: u64,
    rejected: u32,
}

impl<T: Send> Handshakes<T> {
    pub fn new() -> Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let finished = EventFd::from_flags(flags).context("cannot wait for the other side")?;
        let (sender, receiver) = channel();
        Ok(Self {
            finished: Arc::new(finished),
            sender,
            receiver,
            pending: VecDeque::new(),
            started: 0,
            rejected: 0,
        })
    }

    pub fn start<'scope>(
        &mut self,
        threads: &'scope Scope<'scope, '_>,
        socket: Socket,
        set_up: &'scope (impl Fn(Socket) -> Result<T, SetupError> + Sync),
    ) -> Result<()>
    where
        T: 'scope,
    {
        if self.pending.len() == MAX_PENDING {
            self.abort_oldest();
        }
        let copy = socket.as_fd().try_clone_to_owned();
        let number = self.started;
        self.started += 1;
        self.pending
            .push_back((number, copy.context("cannot accept a connection")?));
        let (sender, finished) = (self.sender.clone(), Arc::clone(&self.finished));
        threads.spawn(move || {
            // The receiver is gone if another handshake has succeeded.
            let _ = sender.send((number, set_up(socket)));
            let _ = finished.write(1);
        });
        Ok(())
    }

    /// Returns the first ring that was set up, if any. Reports peers whose handshake failed.
    pub fn finished(&mut self) -> Result<Option<T>> {
        // Resets the descriptor to unreadable.
        let _ = self.finished.read();
        while let Ok((number, outcome)) = self.receiver.try_recv() {
            self.pending.retain(|(pending, _)| *pending != number);
            match outcome {
                Ok(side) => return Ok(Some(side)),
                Err(error) if error.is_peers_fault() => self.report(&error),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    fn report(&mut self, error: &SetupError) {
        self.rejected += 1;
        if self.rejected <= MAX_REPORTED {
            let reason = sluice::explain(error);
            output::note(&format!("sluice: rejected a peer, still waiting: {reason}"));
        }
        if self.rejected == MAX_REPORTED {
            output::note("sluice: further rejected peers are not reported");
        }
    }
}

impl<T> Handshakes<T> {
    fn abort_oldest(&mut self) {
        if let Some((_, socket)) = self.pending.pop_front() {
            // Its thread reads the end of the stream and exits.
            let _ = shutdown(socket.as_raw_fd(), Shutdown::Both);
        }
    }
}

impl<T> AsFd for Handshakes<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.finished.as_fd()
    }
}

/// Ends the threads that wait for silent peers.
impl<T> Drop for Handshakes<T> {
    fn drop(&mut self) {
        while !self.pending.is_empty() {
            self.abort_oldest();
        }
    }
}
