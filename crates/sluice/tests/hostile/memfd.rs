// SPDX-License-Identifier: MIT OR Apache-2.0
//! Malicious peers over memfd.

use std::os::fd::OwnedFd;
use std::time::Duration;

use sluice::ring::{Consumer, Producer, SetupError, Socket, SocketOptions};

use super::support::{CAPACITY, SHORT};

pub use sluice_hostile::{MaliciousConsumer, MaliciousProducer};

/// The time limit of events that have to occur.
pub const LONG: Duration = Duration::from_secs(20);

/// Values of `closed` that mean a close.
pub const CLOSES: [u32; 4] = [1, 2, 3, u32::MAX];

/// Values of `closed` with another meaning.
pub const FAILURES: [u32; 0] = [];

pub fn small() -> SocketOptions {
    SocketOptions::new()
        .capacity(CAPACITY as u64)
        .handshake_timeout(SHORT)
}

pub fn malicious_producer_with(options: &SocketOptions) -> (MaliciousProducer, Consumer) {
    let (malicious, socket) = MaliciousProducer::new(CAPACITY);
    let consumer = options
        .consumer(Socket::from(socket))
        .expect("handshake failed");
    (malicious, consumer)
}

pub fn malicious_consumer_with(options: &SocketOptions) -> (MaliciousConsumer, Producer) {
    let (malicious, socket) = MaliciousConsumer::new();
    let producer = options
        .producer(Socket::from(socket))
        .expect("handshake failed");
    (malicious, producer)
}

/// The result of setting up a consumer on this socket.
pub fn consumer(socket: OwnedFd) -> Result<(), SetupError> {
    small().consumer(Socket::from(socket)).map(drop)
}

/// The result of setting up a producer on this socket.
pub fn producer(socket: OwnedFd) -> Result<(), SetupError> {
    small().producer(Socket::from(socket)).map(drop)
}
