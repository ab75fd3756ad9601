// SPDX-License-Identifier: MIT OR Apache-2.0
//! ZeroMQ over ipc://, which is a Unix socket: a PUSH and a PULL socket with one I/O thread in each process, and
//! otherwise the defaults of the library, as in its own throughput benchmark. (PAIR is meant for threads, and REQ and
//! REP, which its latency benchmark uses, add an envelope and cannot stream.) The scheduler places the I/O threads, as
//! in programs that do not pin them; only the threads that send and receive have their processor.
//!
//! A receiver at its high-water mark drops unread messages when the connection of the sender closes. The sender
//! therefore stays until the receiver has read all messages, which it detects by end of file of a pipe.

mod program;

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use anyhow::{Context, Result, anyhow};
use nix::fcntl::OFlag;
use nix::unistd::pipe2;

use super::mechanism::no_file;
use super::temp_paths::TempPaths;
use super::zmq_library::{Kind, Socket, Zmq};
use super::{Link, Mechanism, Receiver, Sender, own_program};
use crate::harness::waiting::Waiting;
use program::Guide;

pub fn version() -> Option<String> {
    Zmq::load().ok().map(|zmq| zmq.version())
}

pub fn mechanism() -> Mechanism {
    // Or the reason why it is not available.
    let zmq = Zmq::load().map(Rc::new);
    let missing = zmq.as_ref().err();
    let missing = missing.map(|error| format!("{error:#}; install libzmq5"));
    // The paths of the sockets.
    let paths = Rc::new(TempPaths::in_directory(std::env::temp_dir()));
    let own_program = zmq.as_ref().ok().and_then(|zmq| {
        let (zmq, paths) = (Rc::clone(zmq), Rc::clone(&paths));
        own_program::erased(Guide { zmq, paths })
    });
    Mechanism {
        own_program,
        own_threads: true,
        unsupported_reason: Box::new(move |task| no_file(task).or_else(|| missing.clone())),
        ..Mechanism::new("zeromq", Waiting::Sleep, move |_| {
            let zmq = zmq.as_ref().map_err(|error| anyhow!("{error:#}"))?;
            let (closed, alive) = pipe2(OFlag::O_CLOEXEC).context("cannot create a pipe")?;
            let endpoint = Endpoint {
                zmq: Rc::clone(zmq),
                name: format!("ipc://{}", paths.next_path()?.display()),
                closed,
                alive,
            };
            Ok(Link::new(endpoint, Endpoint::sender, Endpoint::receiver))
        })
    }
}

struct Endpoint {
    zmq: Rc<Zmq>,
    name: String,
    /// Reaches end of file when `alive` is closed.
    closed: OwnedFd,
    /// Held by the receiver until it no longer needs the sender.
    alive: OwnedFd,
}

/// The first message. It shows that the connection is established, so that this is not measured.
const HELLO: &[u8] = b"!";
/// The end of the stream.
const END: &[u8] = b"";

impl Endpoint {
    fn sender(self) -> Result<Pushing> {
        let socket = Socket::new(self.zmq, Kind::Push)?;
        socket.connect(&self.name)?;
        socket.send(HELLO)?;
        Ok(Pushing {
            socket,
            receiver_closed: self.closed.into(),
        })
    }

    fn receiver(self) -> Result<Pulling> {
        let socket = Socket::new(self.zmq, Kind::Pull)?;
        socket.bind(&self.name)?;
        socket.receive(&mut [0; HELLO.len()])?;
        Ok(Pulling {
            socket,
            alive: Some(self.alive),
        })
    }
}

struct Pushing {
    socket: Socket,
    receiver_closed: File,
}

impl Sender for Pushing {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        self.socket.send(message)
    }
}

impl Drop for Pushing {
    /// If the receiver misses the end, the harness kills it.
    fn drop(&mut self) {
        if self.socket.send(END).is_ok() {
            let _ = self.receiver_closed.read(&mut [0]);
        }
    }
}

struct Pulling {
    socket: Socket,
    /// None after the end.
    alive: Option<OwnedFd>,
}

impl Receiver for Pulling {
    fn receive(&mut self, message: &mut [u8]) -> Result<usize> {
        if self.alive.is_none() {
            return Ok(0);
        }
        let len = self.socket.receive(message)?;
        if len == END.len() {
            self.alive = None;
        }
        Ok(len)
    }
}
