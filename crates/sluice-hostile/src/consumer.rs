// SPDX-License-Identifier: MIT OR Apache-2.0

use std::os::fd::{AsFd, OwnedFd};

use crate::endpoint::{Endpoint, OWN, PEERS, Role};
use crate::handshake::{Hello, reply};
use crate::memory::{Memory, SEALS, memfd, seal};
use crate::socket::{Memfd, Peer};
use crate::{CTRL_SIZE, DATA};

/// A consumer that has been set up as the protocol demands, over memfd or on a device ring. Its memory is its control page.
#[derive(Debug)]
pub struct MaliciousConsumer<C = Memfd> {
    pub carrier: C,
    pub memory: Memory,
}

impl MaliciousConsumer<Memfd> {
    /// Returns it with the socket on which the library sets up its producer.
    pub fn new() -> (Self, OwnedFd) {
        let (peer, socket) = Peer::pair();
        (Self::over(peer, |_| {}), socket)
    }

    /// On a connection, with a hello that has been changed.
    pub fn over(peer: Peer, tamper: impl FnOnce(&mut Hello)) -> Self {
        let file = memfd(CTRL_SIZE as u64);
        let memory = Memory::map_writable(&file, CTRL_SIZE);
        seal(&file, SEALS);
        let mut hello = Hello::consumer();
        tamper(&mut hello);
        peer.send(&hello.bytes(), &[file.as_fd()])
            .expect("not sent");
        // A tampered hello may be refused already.
        let _ = peer.send(&reply(0), &[]);
        Self {
            carrier: Memfd { peer, file },
            memory,
        }
    }

    /// Receives the producer's hello and maps its file: control structure and data.
    pub fn map_producer(&self, capacity: usize) -> Memory {
        let (_, files) = self.carrier.peer.receive().expect("no hello");
        Memory::map_read_only(&files[0], DATA + capacity)
    }
}

impl MaliciousConsumer<Endpoint> {
    /// Opens the device ring of this name, which it creates.
    pub fn open(name: &str, capacity: usize) -> Self {
        let endpoint = Endpoint::open(name, Role::Consumer, capacity);
        Self {
            memory: endpoint.map_consumer(OWN),
            carrier: endpoint,
        }
    }

    /// Maps the producer's control page, and the data at [`DATA`].
    pub fn map_producer(&self, capacity: usize) -> Memory {
        self.carrier.map_producer(capacity, PEERS)
    }
}
