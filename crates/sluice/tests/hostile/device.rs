// SPDX-License-Identifier: MIT OR Apache-2.0
//! Malicious peers of device rings.

use std::time::Duration;

use sluice::Channel;
use sluice::ring::{Consumer, Options, Producer};
use sluice_hostile::{Endpoint, unused_name};

use super::support::CAPACITY;

/// The time limit of events that have to occur, also on an emulated machine with a kernel that checks itself.
pub const LONG: Duration = Duration::from_secs(60);

/// Values of `closed` that mean a close.
pub const CLOSES: [u32; 3] = [1, 4, u32::MAX];

/// Values of `closed` with another meaning: those that the module stores for a death and a destruction.
pub const FAILURES: [u32; 2] = [2, 3];

pub type MaliciousProducer = sluice_hostile::MaliciousProducer<Endpoint>;
pub type MaliciousConsumer = sluice_hostile::MaliciousConsumer<Endpoint>;

pub fn small() -> Options {
    Options::new().capacity(CAPACITY as u64)
}

pub fn malicious_producer_with(options: &Options) -> (MaliciousProducer, Consumer) {
    let name = unused_name();
    let malicious = MaliciousProducer::open(&name, CAPACITY);
    let channel = Channel::ring(&name).expect("an invalid name");
    let consumer = options.open_consumer(&channel.options());
    (malicious, consumer.expect("not opened"))
}

pub fn malicious_consumer_with(options: &Options) -> (MaliciousConsumer, Producer) {
    let name = unused_name();
    let malicious = MaliciousConsumer::open(&name, CAPACITY);
    let channel = Channel::ring(&name).expect("an invalid name");
    let producer = options.open_producer(&channel.options());
    (malicious, producer.expect("not opened"))
}
