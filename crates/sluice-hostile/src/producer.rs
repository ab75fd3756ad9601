// SPDX-License-Identifier: MIT OR Apache-2.0

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;

use crate::endpoint::{Endpoint, OWN, PEERS, Role};
use crate::handshake::{Hello, reply};
use crate::memory::{Memory, SEALS, memfd, seal};
use crate::socket::{Memfd, Peer};
use crate::{CTRL_SIZE, DATA, POS, next_pos};

/// A producer that has been set up as the protocol demands, over memfd or on a device ring. Its memory is its control page,
/// and the data at [`DATA`].
#[derive(Debug)]
pub struct MaliciousProducer<C = Memfd> {
    pub carrier: C,
    pub memory: Memory,
    capacity: usize,
}

impl<C> MaliciousProducer<C> {
    /// The offset of a position in the memory.
    pub fn offset_of(&self, position: u64) -> usize {
        DATA + position as usize % self.capacity
    }

    pub fn write_bytes(&self, position: u64, bytes: &[u8]) {
        for (offset, &byte) in (0_u64..).zip(bytes) {
            let target = self.memory.byte(self.offset_of(position + offset));
            target.store(byte, Ordering::Relaxed);
        }
    }

    pub fn write_header(&self, position: u64, length: u32, state: u32) {
        let at = self.offset_of(position);
        self.memory.word(at).store(length, Ordering::Relaxed);
        self.memory.word(at + 4).store(state, Ordering::Release);
    }

    /// Publishes a valid record and returns the position after it.
    pub fn send(&self, position: u64, record: &[u8]) -> u64 {
        let length = record.len() as u32;
        let next = next_pos(position, length);
        self.write_bytes(position + 8, record);
        self.write_header(next, 0, 0);
        self.write_header(position, length, 1);
        self.memory.long(POS).store(next, Ordering::Release);
        next
    }
}

impl MaliciousProducer<Memfd> {
    /// Returns it with the socket on which the library sets up its consumer.
    pub fn new(capacity: usize) -> (Self, OwnedFd) {
        let (peer, socket) = Peer::pair();
        (Self::over(peer, capacity, |_| {}), socket)
    }

    /// On a connection, with a hello that has been changed.
    pub fn over(peer: Peer, capacity: usize, tamper: impl FnOnce(&mut Hello)) -> Self {
        let file = memfd((DATA + capacity) as u64);
        let memory = Memory::map_writable(&file, DATA + capacity);
        seal(&file, SEALS);
        let mut hello = Hello::producer(capacity);
        tamper(&mut hello);
        peer.send(&hello.bytes(), &[file.as_fd()])
            .expect("not sent");
        // A tampered hello may be refused already.
        let _ = peer.send(&reply(0), &[]);
        Self {
            carrier: Memfd { peer, file },
            memory,
            capacity,
        }
    }

    /// Receives the consumer's hello and maps its file: the control structure.
    pub fn map_consumer(&self) -> Memory {
        let (_, files) = self.carrier.peer.receive().expect("no hello");
        Memory::map_read_only(&files[0], CTRL_SIZE)
    }
}

impl MaliciousProducer<Endpoint> {
    /// Opens the device ring of this name, which it creates.
    pub fn open(name: &str, capacity: usize) -> Self {
        let endpoint = Endpoint::open(name, Role::Producer, capacity);
        Self {
            memory: endpoint.map_producer(capacity, OWN),
            carrier: endpoint,
            capacity,
        }
    }

    pub fn map_consumer(&self) -> Memory {
        self.carrier.map_consumer(PEERS)
    }
}
