// SPDX-License-Identifier: MIT OR Apache-2.0
//! Device rings: each side opens its role by the name of the channel, or is set up with an endpoint.

use std::os::fd::OwnedFd;
use std::time::Duration;

use sluice::ring::{Consumer, Producer, SetupError};
use sluice_hostile::{Endpoint, MaliciousConsumer, MaliciousProducer, Role, unused_name};

pub use super::super::options::Options;

/// The timeout for events that must happen, also on an emulated machine with a kernel that checks itself.
pub const LONG: Duration = Duration::from_secs(60);

/// The data is mapped twice in a row, by one mapping.
pub const DATA_MAPPINGS: u64 = 1;

/// Sets up both sides with their options. The producer creates the channel.
pub fn set_up(
    sending: &Options,
    receiving: &Options,
) -> (Result<Producer, SetupError>, Result<Consumer, SetupError>) {
    let name = unused_name();
    let producer = sending.named(&name).create(true).producer();
    (producer, receiving.named(&name).consumer())
}

/// What a producer and a consumer of the same ring are set up with, in this process or in another one.
pub fn ends() -> (OwnedFd, OwnedFd) {
    let name = unused_name();
    let open = |role| Endpoint::open(&name, role, 4096).into();
    (open(Role::Producer), open(Role::Consumer))
}

pub fn producer(options: &Options, end: OwnedFd) -> Result<Producer, SetupError> {
    options.attach().producer(end)
}

pub fn consumer(options: &Options, end: OwnedFd) -> Result<Consumer, SetupError> {
    options.attach().consumer(end)
}

/// A consumer, and a producer that dies when it is dropped.
pub fn mortal_producer(options: &Options) -> (MaliciousProducer<Endpoint>, Consumer) {
    let name = unused_name();
    let producer = MaliciousProducer::open(&name, 4096);
    let consumer = options.named(&name).consumer();
    (producer, consumer.expect("no ring"))
}

/// A producer, and a consumer that dies when it is dropped.
pub fn mortal_consumer(options: &Options) -> (MaliciousConsumer<Endpoint>, Producer) {
    let name = unused_name();
    let consumer = MaliciousConsumer::open(&name, 4096);
    let producer = options.named(&name).producer();
    (consumer, producer.expect("no ring"))
}
