// SPDX-License-Identifier: MIT OR Apache-2.0

use std::os::fd::{AsFd, OwnedFd};

use crate::handshake::{Hello, reply};
use crate::memory::{Memory, SEALS, memfd, seal};
use crate::socket::Peer;
use crate::{CTRL_SIZE, DATA};

/// A consumer that has completed a valid handshake.
#[derive(Debug)]
pub struct MaliciousConsumer {
    pub peer: Peer,
    pub file: OwnedFd,
    pub memory: Memory,
}

impl MaliciousConsumer {
    /// Returns it with the socket on which the library sets up its producer.
    pub fn new() -> (Self, OwnedFd) {
        let (peer, socket) = Peer::pair();
        let file = memfd(CTRL_SIZE as u64);
        let memory = Memory::map_writable(&file, CTRL_SIZE);
        seal(&file, SEALS);
        peer.send(&Hello::consumer().bytes(), &[file.as_fd()])
            .expect("not sent");
        peer.send(&reply(0), &[]).expect("not sent");
        (Self { peer, file, memory }, socket)
    }

    /// Receives the producer's hello and maps its file: control structure and data.
    pub fn map_producer(&self, capacity: usize) -> Memory {
        let (_, files) = self.peer.receive().expect("no hello");
        Memory::map_read_only(&files[0], DATA + capacity)
    }
}
