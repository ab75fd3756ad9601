// SPDX-License-Identifier: MIT OR Apache-2.0

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;

use crate::greeting::{Hello, verdict};
use crate::memory::{Memory, SEALS, memfd, seal};
use crate::socket::Peer;
use crate::{DATA, POSITION, SIDE, behind};

/// One that has told the truth so far.
#[derive(Debug)]
pub struct LyingProducer {
    pub peer: Peer,
    pub file: OwnedFd,
    pub memory: Memory,
    capacity: usize,
}

impl LyingProducer {
    /// And the socket over which an honest consumer finds the ring set up.
    pub fn new(capacity: usize) -> (Self, OwnedFd) {
        let (peer, socket) = Peer::pair();
        let file = memfd((DATA + capacity) as u64);
        let memory = Memory::ours(&file, DATA + capacity);
        seal(&file, SEALS);
        peer.say(&Hello::producer(capacity).bytes(), &[file.as_fd()])
            .expect("not said");
        peer.say(&verdict(0), &[]).expect("not said");
        let liar = Self {
            peer,
            file,
            memory,
            capacity,
        };
        (liar, socket)
    }

    /// Where a position is in the memory.
    pub fn at(&self, position: u64) -> usize {
        DATA + position as usize % self.capacity
    }

    pub fn bytes(&self, position: u64, bytes: &[u8]) {
        for (offset, &byte) in (0_u64..).zip(bytes) {
            let place = self.memory.byte(self.at(position + offset));
            place.store(byte, Ordering::Relaxed);
        }
    }

    pub fn header(&self, position: u64, length: u32, state: u32) {
        let at = self.at(position);
        self.memory.word(at).store(length, Ordering::Relaxed);
        self.memory.word(at + 4).store(state, Ordering::Release);
    }

    /// Sends a record as it should be, and says where the next one belongs.
    pub fn send(&self, position: u64, record: &[u8]) -> u64 {
        let length = record.len() as u32;
        let next = behind(position, length);
        self.bytes(position + 8, record);
        self.header(next, 0, 0);
        self.header(position, length, 1);
        self.memory.long(POSITION).store(next, Ordering::Release);
        next
    }

    /// The honest consumer's side, which it sent with its greeting.
    pub fn theirs(&self) -> Memory {
        let (_, files) = self.peer.hear().expect("it said nothing");
        Memory::theirs(&files[0], SIDE)
    }
}
