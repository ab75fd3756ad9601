// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rings over memfd: each side is set up with a socket.

use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use sluice::ring::{Consumer, Producer, SetupError, Socket};
use sluice_hostile::{MaliciousConsumer, MaliciousProducer};

pub use sluice::ring::SocketOptions as Options;

/// The timeout for events that must happen.
pub const LONG: Duration = Duration::from_secs(20);

/// The data is mapped twice in a row, each time by a mapping of its own.
pub const DATA_MAPPINGS: u64 = 2;

/// Sets up both sides with their options.
pub fn set_up(
    sending: &Options,
    receiving: &Options,
) -> (Result<Producer, SetupError>, Result<Consumer, SetupError>) {
    let (here, there) = ends();
    thread::scope(|scope| {
        let producer = scope.spawn(|| producer(sending, here));
        let consumer = consumer(receiving, there);
        (producer.join().expect("the producer panicked"), consumer)
    })
}

/// What a producer and a consumer of the same ring are set up with, in this process or in another one.
pub fn ends() -> (OwnedFd, OwnedFd) {
    let (here, there) = Socket::pair().expect("no sockets");
    (here.into(), there.into())
}

pub fn producer(options: &Options, end: OwnedFd) -> Result<Producer, SetupError> {
    options.producer(Socket::from(end))
}

pub fn consumer(options: &Options, end: OwnedFd) -> Result<Consumer, SetupError> {
    options.consumer(Socket::from(end))
}

/// A consumer, and a producer that dies when it is dropped. Needs no second thread.
pub fn mortal_producer(options: &Options) -> (MaliciousProducer, Consumer) {
    let (producer, end) = MaliciousProducer::new(4096);
    (producer, consumer(options, end).expect("no ring"))
}

/// A producer, and a consumer that dies when it is dropped. Needs no second thread.
pub fn mortal_consumer(options: &Options) -> (MaliciousConsumer, Producer) {
    let (consumer, end) = MaliciousConsumer::new();
    (consumer, producer(options, end).expect("no ring"))
}
