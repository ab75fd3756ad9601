// SPDX-License-Identifier: MIT OR Apache-2.0
//! A side that follows the protocol until it is told otherwise.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use sluice_hostile::{
    CLOSED, Hello, MaliciousConsumer, MaliciousProducer, Memory, POS, Peer, WAIT_FLAGS, WAKE_SEQ,
};

/// Of the rings of the behaviours.
const CAPACITY: usize = 4096;

pub enum BadPeer {
    Producer(MaliciousProducer),
    Consumer(MaliciousConsumer),
}

impl BadPeer {
    /// With fields of its hello such as version=2. Waits for the reply of the other side.
    pub fn set_up(side: &str, socket: OwnedFd, fields: &[&str]) -> Result<Self, String> {
        let peer = Peer::from(socket);
        let bad = match side {
            "bad-producer" => Self::Producer(MaliciousProducer::over(peer, CAPACITY, |hello| {
                tamper(hello, fields)
            })),
            _ => Self::Consumer(MaliciousConsumer::over(peer, |hello| tamper(hello, fields))),
        };
        match bad.reply() {
            Some(0) => Ok(bad),
            Some(number) => Err(format!("refused {:?}", Errno::from_raw(number as i32))),
            None => Err("refused".to_owned()),
        }
    }

    /// The other side sends its hello, and then its reply, or ends the connection.
    fn reply(&self) -> Option<u32> {
        let peer = match self {
            Self::Producer(producer) => &producer.carrier.peer,
            Self::Consumer(consumer) => &consumer.carrier.peer,
        };
        loop {
            let waited = poll(
                &mut [PollFd::new(peer.as_fd(), PollFlags::POLLIN)],
                PollTimeout::from(30_000_u16),
            );
            if waited != Ok(1) {
                return None;
            }
            let message = match peer.receive() {
                Ok((message, _)) => message,
                // Reported once if the other side closed with unread messages; its own messages are still queued.
                Err(error) if error.raw_os_error() == Errno::ECONNRESET as i32 => continue,
                Err(_) => return None,
            };
            match message.len() {
                0 => return None,
                8 => return Some(u32::from_ne_bytes(message[4..].try_into().ok()?)),
                _ => {}
            }
        }
    }

    fn memory(&self) -> &Memory {
        match self {
            Self::Producer(producer) => &producer.memory,
            Self::Consumer(consumer) => &consumer.memory,
        }
    }

    pub fn execute(&mut self, words: &[&str]) -> Option<String> {
        match (words, &self) {
            (["set", "pos", value], _) => self
                .memory()
                .long(POS)
                .store(value.parse().ok()?, Ordering::Release),
            (["set", word, value], _) => self
                .memory()
                .word(offset(word)?)
                .store(value.parse().ok()?, Ordering::Release),
            (["header", length, state], Self::Producer(producer)) => {
                producer.write_header(0, length.parse().ok()?, state.parse().ok()?)
            }
            (["sleep", time], _) => thread::sleep(Duration::from_millis(time.parse().ok()?)),
            _ => return None,
        }
        Some("ok".to_owned())
    }
}

fn offset(word: &str) -> Option<usize> {
    Some(match word {
        "closed" => CLOSED,
        "wait_flags" => WAIT_FLAGS,
        "wake_seq" => WAKE_SEQ,
        _ => return None,
    })
}

fn tamper(hello: &mut Hello, fields: &[&str]) {
    for (field, value) in fields.iter().filter_map(|field| field.split_once('=')) {
        let value: u64 = value.parse().unwrap_or_default();
        match field {
            "magic" => hello.magic = value as u32,
            "size" => hello.size = value as u32,
            "version" => hello.version = value as u32,
            "role" => hello.role = value as u32,
            "flags" => hello.flags = value as u32,
            "data" => hello.data = value as u32,
            "capacity" => hello.capacity = value,
            _ => {}
        }
    }
}
