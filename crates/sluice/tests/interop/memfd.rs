// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rings over memfd: the other side gets its socket as its standard input.

use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};

use sluice::ring::{Consumer, Producer, Socket};

use super::python_peer::LONG;

pub use sluice::ring::SocketOptions as Options;

/// Twice every length from 0 to the longest of a ring of 4096 bytes: a thousand laps.
pub const RECORDS: usize = 2 * 2041;

/// Fewer, which are still many times the capacity.
pub const MANY: usize = 500;

/// How the other side sleeps, whether it is registered with membarrier(2), and its batch size.
pub const WAITS: [&str; 6] = [
    "--how futex",
    "--how socket",
    "--how futex --unregistered",
    "--how socket --unregistered --spins 100",
    "--how futex --spins 100 --batch 2",
    "--how socket --batch 2",
];

/// With a spinning library, which never sleeps and only wakes the other side.
pub const SLEEPING_WAITS: [&str; 3] = [WAITS[0], WAITS[1], WAITS[3]];

/// How the other side can sleep.
pub const HOW: [&str; 2] = ["futex", "socket"];

/// The smallest ring, which is full soonest. The timeout covers the start of Python.
pub fn small() -> Options {
    Options::new().capacity(4096).handshake_timeout(LONG)
}

/// What a side is set up with.
#[derive(Debug)]
pub struct End(Socket);

/// A ring over memfd leaves nothing behind.
#[derive(Debug)]
pub struct Guard;

impl End {
    /// One for this process, and one for another.
    pub fn pair() -> (Self, Self, Guard) {
        let (here, there) = Socket::pair().expect("no sockets");
        (Self(here), Self(there), Guard)
    }

    pub fn give_to(self, process: &mut Command) {
        process.stdin(Stdio::from(OwnedFd::from(self.0)));
    }

    /// The one that this process was given.
    pub fn given() -> Self {
        let socket = std::io::stdin().as_fd().try_clone_to_owned();
        Self(Socket::from(socket.expect("no input")))
    }

    pub fn producer(self, options: &Options) -> Producer {
        options.producer(self.0).expect("no ring")
    }

    pub fn consumer(self, options: &Options) -> Consumer {
        options.consumer(self.0).expect("no ring")
    }
}

impl From<End> for Socket {
    fn from(end: End) -> Self {
        end.0
    }
}
