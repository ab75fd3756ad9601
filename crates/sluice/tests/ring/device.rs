// SPDX-License-Identifier: MIT OR Apache-2.0
//! Device rings: each side opens its role by the name of the channel, or is set up with an endpoint.

use std::os::fd::OwnedFd;
use std::time::Duration;

use sluice::Channel;
use sluice::ring::{Consumer, Options, Producer, SetupError};
use sluice_hostile::{Endpoint, MaliciousConsumer, MaliciousProducer, Role, unused_name};

/// The timeout for events that must happen, also on an emulated machine with a kernel that checks itself.
pub const LONG: Duration = Duration::from_secs(60);

/// The data is mapped twice in a row, by one mapping.
pub const DATA_MAPPINGS: u64 = 1;

pub fn unused_channel() -> Channel {
    Channel::ring(unused_name()).expect("an invalid name")
}

/// Sets up both sides with their options. The producer creates the channel.
pub fn set_up(
    sending: &Options,
    receiving: &Options,
) -> (Result<Producer, SetupError>, Result<Consumer, SetupError>) {
    let channel = unused_channel();
    let producer = sending.open_producer(&channel.options().create(true));
    (producer, receiving.open_consumer(&channel.options()))
}

/// What a producer and a consumer of the same ring are set up with, in this process or in another one.
pub fn ends() -> (OwnedFd, OwnedFd) {
    let name = unused_name();
    let open = |role| Endpoint::open(&name, role, 4096).into();
    (open(Role::Producer), open(Role::Consumer))
}

pub fn producer(options: &Options, end: OwnedFd) -> Result<Producer, SetupError> {
    options.attach_producer(end)
}

pub fn consumer(options: &Options, end: OwnedFd) -> Result<Consumer, SetupError> {
    options.attach_consumer(end)
}

/// A consumer, and a producer that dies when it is dropped.
pub fn mortal_producer(options: &Options) -> (MaliciousProducer<Endpoint>, Consumer) {
    let channel = unused_channel();
    let producer = MaliciousProducer::open(&channel.name().to_string(), 4096);
    let consumer = options.open_consumer(&channel.options());
    (producer, consumer.expect("no ring"))
}

/// A producer, and a consumer that dies when it is dropped.
pub fn mortal_consumer(options: &Options) -> (MaliciousConsumer<Endpoint>, Producer) {
    let channel = unused_channel();
    let consumer = MaliciousConsumer::open(&channel.name().to_string(), 4096);
    let producer = options.open_producer(&channel.options());
    (consumer, producer.expect("no ring"))
}
