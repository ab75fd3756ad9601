// SPDX-License-Identifier: MIT OR Apache-2.0
//! ZeroMQ over ipc://, which is a Unix socket: a PUSH and a PULL socket, one I/O thread in each process and otherwise the
//! library's defaults, which is how its own throughput measurement is set up. (PAIR is meant for threads, and REQ and REP,
//! with which the library measures latency, carry an envelope and cannot stream.)
//!
//! A receiver that is at its high-water mark drops what it has not read yet when the sender's connection closes. So the sender
//! stays until the receiver has all, which it learns through a pipe that carries nothing: its other end is closed then.

use std::fs::File;
use std::io::Read;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::rc::Rc;

use anyhow::{Context, Result, anyhow};
use nix::fcntl::OFlag;
use nix::unistd::pipe2;

use super::places::Places;
use super::zmq_library::{Kind, Socket, Zmq};
use super::{Link, Mechanism, Receiver, Sender, Task, Waiting, no_file};

pub struct ZeroMq {
    /// Or why not.
    zmq: Result<Rc<Zmq>, String>,
    /// Of the sockets.
    places: Places,
}

impl ZeroMq {
    pub fn load() -> Self {
        let advice = |error| format!("{error:#}; install libzmq5");
        Self {
            zmq: Zmq::load().map(Rc::new).map_err(advice),
            places: Places::below(std::env::temp_dir()),
        }
    }
}

impl Mechanism for ZeroMq {
    fn name(&self) -> &'static str {
        "zeromq"
    }

    fn waiting(&self) -> Waiting {
        Waiting::Sleep
    }

    fn obstacle(&self, task: &Task) -> Option<String> {
        no_file(task).or_else(|| self.zmq.as_ref().err().cloned())
    }

    fn link(&self, _size: usize) -> Result<Box<dyn Link>> {
        let zmq = self.zmq.as_ref().map_err(|reason| anyhow!("{reason}"))?;
        let path = self.places.fresh()?;
        let (gone, here) = pipe2(OFlag::O_CLOEXEC).context("cannot make a pipe")?;
        Ok(Box::new(Endpoint {
            zmq: Rc::clone(zmq),
            name: format!("ipc://{}", path.display()),
            gone,
            here,
        }))
    }
}

struct Endpoint {
    zmq: Rc<Zmq>,
    name: String,
    /// Ends when `here` is closed.
    gone: OwnedFd,
    /// The receiver has it until it needs no sender any more.
    here: OwnedFd,
}

/// The first message. Whoever has it knows that the connection stands, so that making it is not measured.
const GREETING: &[u8] = b"!";
/// In place of a message: nothing more will come.
const END: &[u8] = b"";

impl Link for Endpoint {
    fn sender(self: Box<Self>) -> Result<Box<dyn Sender>> {
        let socket = Socket::new(self.zmq, Kind::Push)?;
        socket.connect(&self.name)?;
        socket.send(GREETING)?;
        Ok(Box::new(Pushing {
            socket,
            receiver_gone: self.gone.into(),
        }))
    }

    fn receiver(self: Box<Self>) -> Result<Box<dyn Receiver>> {
        let socket = Socket::new(self.zmq, Kind::Pull)?;
        socket.bind(&self.name)?;
        socket.receive(&mut [0; GREETING.len()])?;
        Ok(Box::new(Pulling {
            socket,
            here: Some(self.here),
        }))
    }
}

struct Pushing {
    socket: Socket,
    receiver_gone: File,
}

impl Sender for Pushing {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        self.socket.send(message)
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl Drop for Pushing {
    /// A receiver that does not get it is ended by the harness.
    fn drop(&mut self) {
        if self.socket.send(END).is_ok() {
            let _ = self.receiver_gone.read(&mut [0]);
        }
    }
}

struct Pulling {
    socket: Socket,
    /// None after the end.
    here: Option<OwnedFd>,
}

impl Receiver for Pulling {
    fn receive(&mut self, message: &mut [u8]) -> Result<usize> {
        if self.here.is_none() {
            return Ok(0);
        }
        let len = self.socket.receive(message)?;
        if len == END.len() {
            self.here = None;
        }
        Ok(len)
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
