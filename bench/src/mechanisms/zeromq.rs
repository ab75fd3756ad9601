// SPDX-License-Identifier: MIT OR Apache-2.0
//! ZeroMQ over ipc://, which is a Unix socket: a PUSH and a PULL socket with one I/O thread in each process, and
//! otherwise the defaults of the library, as in its own throughput benchmark. (PAIR is meant for threads, and REQ and
//! REP, which its latency benchmark uses, add an envelope and cannot stream.) The scheduler places the I/O threads, as
//! in programs that do not pin them; only the threads that send and receive have their processor.
//!
//! A receiver at its high-water mark drops unread messages when the connection of the sender closes. The sender
//! therefore stays until the receiver has read all messages, which it detects by end of file of a pipe.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use anyhow::{Result, anyhow, ensure};
use sluice_testkit::workers::Pair;

use super::own_program::{OwnProgram, Role, Run};
use super::pipe::pipe;
use super::temp_paths::TempPaths;
use super::zmq_library::{Kind, Socket, Zmq};
use super::{Link, Mechanism, Receiver, Sender};
use crate::harness::waiting::Waiting;

pub fn version() -> Option<String> {
    Zmq::load().ok().map(|zmq| zmq.version())
}

pub fn mechanism() -> Mechanism {
    // Or the reason why it is not available.
    let endpoints = Zmq::load()
        .map(|zmq| Endpoints {
            zmq: Rc::new(zmq),
            paths: TempPaths::in_directory(std::env::temp_dir()),
        })
        .map(Rc::new)
        .map_err(|error| format!("{error:#}; install libzmq5"));
    let missing = endpoints.as_ref().err().cloned();
    Mechanism {
        own_program: match endpoints.clone() {
            Ok(endpoints) => Some(endpoints),
            Err(_) => None,
        },
        own_threads: true,
        unsupported_reason: Box::new(move |_| missing.clone()),
        ..Mechanism::new("zeromq", Waiting::Sleep, move |_| {
            let endpoints = endpoints.as_ref().map_err(|reason| anyhow!("{reason}"))?;
            Ok(Link::new(
                (endpoints.next()?, pipe()?),
                |(endpoint, (closed, _))| Pushing::new(endpoint, closed),
                |(endpoint, (_, alive))| Pulling::new(endpoint, alive),
            ))
        })
    }
}

struct Endpoints {
    zmq: Rc<Zmq>,
    /// The paths of the sockets.
    paths: TempPaths,
}

impl Endpoints {
    fn next(&self) -> Result<Endpoint> {
        Ok(Endpoint {
            zmq: Rc::clone(&self.zmq),
            name: format!("ipc://{}", self.paths.next_path()?.display()),
        })
    }
}

struct Endpoint {
    zmq: Rc<Zmq>,
    name: String,
}

impl Endpoint {
    fn connect(self, kind: Kind) -> Result<Socket> {
        let socket = Socket::new(self.zmq, kind)?;
        socket.connect(&self.name)?;
        Ok(socket)
    }

    fn bind(self, kind: Kind) -> Result<Socket> {
        let socket = Socket::new(self.zmq, kind)?;
        socket.bind(&self.name)?;
        Ok(socket)
    }
}

/// The first message. It shows that the connection is established, so that this is not measured.
const HELLO: &[u8] = b"!";
/// The end of the stream.
const END: &[u8] = b"";

struct Pushing {
    socket: Socket,
    /// Reaches end of file when the receiver no longer needs the sender.
    receiver_closed: File,
}

impl Pushing {
    fn new(endpoint: Endpoint, closed: OwnedFd) -> Result<Self> {
        let socket = endpoint.connect(Kind::Push)?;
        socket.send(HELLO)?;
        Ok(Self {
            socket,
            receiver_closed: closed.into(),
        })
    }
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

impl Pulling {
    fn new(endpoint: Endpoint, alive: OwnedFd) -> Result<Self> {
        let socket = endpoint.bind(Kind::Pull)?;
        socket.receive(&mut [0; HELLO.len()])?;
        let alive = Some(alive);
        Ok(Self { socket, alive })
    }
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

/// As the first programs of the library's guide: a REQ and a REP socket for round trips, which its latency benchmark uses as
/// well; and a PUSH and a PULL socket for streams, as in its throughput benchmark.
impl OwnProgram for Endpoints {
    fn start(&self, run: &Run) -> Result<Pair> {
        run.start(self.next()?, |endpoint, role, process| {
            let mut message = vec![0xab; run.size];
            match role {
                Role::Requester => {
                    let socket = endpoint.connect(Kind::Req)?;
                    process.request(|| {
                        socket.send(&message)?;
                        receive(&socket, &mut message)
                    })
                }
                Role::Replier => {
                    let socket = endpoint.bind(Kind::Rep)?;
                    process.reply(|| {
                        receive(&socket, &mut message)?;
                        socket.send(&message)?;
                        Ok(1)
                    })
                }
                Role::Source => {
                    let socket = endpoint.connect(Kind::Push)?;
                    process.send(|| socket.send(&message))
                }
                Role::Sink => {
                    let socket = endpoint.bind(Kind::Pull)?;
                    process.receive(|| receive(&socket, &mut message).map(|()| 1))
                }
            }
        })
    }
}

fn receive(socket: &Socket, message: &mut [u8]) -> Result<()> {
    let (received, expected) = (socket.receive(message)?, message.len());
    ensure!(
        received == expected,
        "a message has {received} bytes instead of {expected}"
    );
    Ok(())
}
