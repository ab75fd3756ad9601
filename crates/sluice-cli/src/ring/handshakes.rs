// SPDX-License-Identifier: MIT OR Apache-2.0
//! The handshakes with all who connected, each in a thread of its own, so that a silent peer delays nobody.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Scope;

use anyhow::{Context, Result};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::socket::{Shutdown, shutdown};
use sluice::ring::{SetupError, Socket};

/// As many at the same time. Where there are more, the oldest is given up: an honest peer needs no time.
const MAX_PENDING: usize = 32;

/// So many peers that were turned away are reported one by one.
const MAX_REPORTED: u32 = 5;

type Outcome<T> = (u64, Result<T, SetupError>);

pub struct Handshakes<T> {
    /// Readable when one has finished.
    finished: Arc<EventFd>,
    sender: Sender<Outcome<T>>,
    receiver: Receiver<Outcome<T>>,
    /// By their numbers, the oldest first.
    pending: VecDeque<(u64, OwnedFd)>,
    started: u64,
    turned_away: u32,
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
            turned_away: 0,
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
            self.give_up_oldest();
        }
        let copy = socket.as_fd().try_clone_to_owned();
        let number = self.started;
        self.started += 1;
        self.pending
            .push_back((number, copy.context("cannot accept a connection")?));
        let (sender, finished) = (self.sender.clone(), Arc::clone(&self.finished));
        threads.spawn(move || {
            // Whoever waited for it may have another peer by now.
            let _ = sender.send((number, set_up(socket)));
            let _ = finished.write(1);
        });
        Ok(())
    }

    /// The ring that was set up, if one was. Peers with which that failed are turned away.
    pub fn finished(&mut self) -> Result<Option<T>> {
        // It is only read so that it is not readable any more.
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
        self.turned_away += 1;
        if self.turned_away <= MAX_REPORTED {
            eprintln!("sluice: turned away a peer, and still waiting: {error}");
        }
        if self.turned_away == MAX_REPORTED {
            eprintln!("sluice: peers that are turned away from now on are not reported");
        }
    }
}

impl<T> Handshakes<T> {
    fn give_up_oldest(&mut self) {
        if let Some((_, socket)) = self.pending.pop_front() {
            // Its thread finds the end of the stream.
            let _ = shutdown(socket.as_raw_fd(), Shutdown::Both);
        }
    }
}

impl<T> AsFd for Handshakes<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.finished.as_fd()
    }
}

/// No thread waits for a silent peer any more.
impl<T> Drop for Handshakes<T> {
    fn drop(&mut self) {
        while !self.pending.is_empty() {
            self.give_up_oldest();
        }
    }
}
