// SPDX-License-Identifier: MIT OR Apache-2.0

use std::os::fd::{AsFd, OwnedFd};

use crate::greeting::{Hello, verdict};
use crate::memory::{Memory, SEALS, memfd, seal};
use crate::socket::Peer;
use crate::{DATA, SIDE};

/// One that has told the truth so far.
#[derive(Debug)]
pub struct LyingConsumer {
    pub peer: Peer,
    pub file: OwnedFd,
    pub memory: Memory,
}

impl LyingConsumer {
    /// And the socket over which an honest producer finds the ring set up.
    pub fn new() -> (Self, OwnedFd) {
        let (peer, socket) = Peer::pair();
        let file = memfd(SIDE as u64);
        let memory = Memory::ours(&file, SIDE);
        seal(&file, SEALS);
        peer.say(&Hello::consumer().bytes(), &[file.as_fd()])
            .expect("not said");
        peer.say(&verdict(0), &[]).expect("not said");
        (Self { peer, file, memory }, socket)
    }

    /// The honest producer's side and data, which it sent with its greeting.
    pub fn theirs(&self, capacity: usize) -> Memory {
        let (_, files) = self.peer.hear().expect("it said nothing");
        Memory::theirs(&files[0], DATA + capacity)
    }
}
