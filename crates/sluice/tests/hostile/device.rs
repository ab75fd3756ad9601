// SPDX-License-Identifier: MIT OR Apache-2.0
//! Malicious peers of device rings.

use std::time::Duration;

use sluice::ring::{Consumer, Producer};
use sluice_hostile::{Endpoint, unused_name};

use super::super::options::Options;
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
    let consumer = options.named(&name).consumer();
    (malicious, consumer.expect("not opened"))
}

pub fn malicious_consumer_with(options: &Options) -> (MaliciousConsumer, Producer) {
    let name = unused_name();
    let malicious = MaliciousConsumer::open(&name, CAPACITY);
    let producer = options.named(&name).producer();
    (malicious, producer.expect("not opened"))
}
