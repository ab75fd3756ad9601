// SPDX-License-Identifier: MIT OR Apache-2.0
//! ZeroMQ over ipc://, which is a Unix socket: a PUSH and a PULL socket with one I/O thread in each process, and otherwise the defaults of
//! the library, as in its own throughput benchmark. (PAIR is meant for threads; REQ and REP add an envelope and cannot stream.) The
//! scheduler places the I/O threads, as in programs that do not pin them. A receiver at its high-water mark drops unread messages when
//! the connection of the sender closes, so the sender stays until the receiver closes a pipe.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use anyhow::{Result, ensure};
use sluice_testkit::workers::Pair;

use super::mechanism::failure;
use super::own_program::{Role, Run, own_program};
use super::pipe::pipe;
use super::temp_paths::TempPaths;
use super::zmq_library::{Kind, Socket, zmq};
use super::{Link, Mechanism, Receiver, Sender};
use crate::harness::waiting::Waiting;

pub fn version() -> Option<String> {
    let zmq = zmq().ok()?;
    let [mut major, mut minor, mut patch] = [0; 3];
    // SAFETY: it writes a number to each of the three.
    unsafe { (zmq.version)(&mut major, &mut minor, &mut patch) };
    Some(format!("{major}.{minor}.{patch}"))
}

pub fn mechanism() -> Mechanism {
    // The paths of the sockets.
    let paths = Rc::new(TempPaths::in_directory(std::env::temp_dir()));
    Mechanism {
        own_program: Some(own_program(&paths, sockets_of_guide)),
        own_threads: true,
        unsupported_reason: Box::new(|_| failure(zmq())),
        ..Mechanism::new("zeromq", Waiting::Sleep, move |_| {
            Ok(Link::new(
                (endpoint(&paths)?, pipe()?),
                |(endpoint, (receiver_closed, _))| {
                    let socket = Socket::new(Kind::Push)?.connect(&endpoint)?;
                    socket.send(HELLO)?;
                    Ok(Pushing(socket, receiver_closed.into()))
                },
                |(endpoint, (_, alive))| pulling(endpoint, alive),
            ))
        })
    }
}

pub fn endpoint(paths: &TempPaths) -> Result<String> {
    Ok(format!("ipc://{}", paths.next_path()?.display()))
}

/// The first message. It shows that the connection is established, so that this is not measured.
const HELLO: &[u8] = b"!";
const END: &[u8] = b"";

/// The file reaches its end when the receiver no longer needs the sender.
struct Pushing(Socket, File);

impl Sender for Pushing {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        self.0.send(message)
    }
}

impl Drop for Pushing {
    /// If the receiver misses the end, the harness kills it.
    fn drop(&mut self) {
        if self.0.send(END).is_ok() {
            let _ = self.1.read(&mut [0]);
        }
    }
}

fn pulling(endpoint: String, alive: OwnedFd) -> Result<impl Receiver> {
    let socket = Socket::new(Kind::Pull)?.bind(&endpoint)?;
    socket.receive(&mut [0; HELLO.len()])?;
    // None after the end.
    let mut alive = Some(alive);
    Ok(move |message: &mut [u8]| {
        if alive.is_none() {
            return Ok(0);
        }
        let len = socket.receive(message)?;
        if len == END.len() {
            alive = None;
        }
        Ok(len)
    })
}

/// As the first programs of the library's guide: REQ and REP sockets for round trips, and PUSH and PULL sockets for streams.
fn sockets_of_guide(paths: &Rc<TempPaths>, run: &Run) -> Result<Pair> {
    run.start(endpoint(paths)?, |endpoint, role, process| {
        let mut message = vec![0xab; run.size];
        match role {
            Role::Requester => {
                let socket = Socket::new(Kind::Req)?.connect(&endpoint)?;
                process.request(|| {
                    socket.send(&message)?;
                    receive(&socket, &mut message)
                })
            }
            Role::Replier => {
                let socket = Socket::new(Kind::Rep)?.bind(&endpoint)?;
                process.reply(|| {
                    receive(&socket, &mut message)?;
                    socket.send(&message)?;
                    Ok(1)
                })
            }
            Role::Source => {
                let socket = Socket::new(Kind::Push)?.connect(&endpoint)?;
                process.send(|| socket.send(&message))
            }
            Role::Sink => {
                let socket = Socket::new(Kind::Pull)?.bind(&endpoint)?;
                process.receive(|| receive(&socket, &mut message).map(|()| 1))
            }
        }
    })
}

fn receive(socket: &Socket, message: &mut [u8]) -> Result<()> {
    let (len, size) = (socket.receive(message)?, message.len());
    ensure!(len == size, "a message has {len} bytes instead of {size}");
    Ok(())
}
