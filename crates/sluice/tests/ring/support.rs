// SPDX-License-Identifier: MIT OR Apache-2.0

use std::thread;
use std::time::Duration;

use sluice::ring::{Consumer, Options, Producer, SetupError, Socket};

/// The timeout for events that must happen.
pub const LONG: Duration = Duration::from_secs(20);

/// The delay before the check that nothing has happened.
pub const SHORT: Duration = Duration::from_millis(50);

/// Both sides of a ring, set up with the same options.
pub fn ring(options: &Options) -> (Producer, Consumer) {
    let (here, there) = Socket::pair().expect("no sockets");
    let (sending, receiving) = set_up(options, options, here, there);
    (
        sending.expect("no producer"),
        receiving.expect("no consumer"),
    )
}

pub fn small() -> Options {
    Options::new().capacity(4096)
}

/// Sets up both sides with their options.
pub fn set_up(
    sending: &Options,
    receiving: &Options,
    here: Socket,
    there: Socket,
) -> (Result<Producer, SetupError>, Result<Consumer, SetupError>) {
    thread::scope(|scope| {
        let producer = scope.spawn(|| sending.producer(here));
        let consumer = receiving.consumer(there);
        (producer.join().expect("the producer panicked"), consumer)
    })
}

/// Bytes that depend on the number of the record and on the offset.
pub fn pattern(number: usize, length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| (number.wrapping_mul(31) ^ at.wrapping_mul(7)) as u8)
        .collect()
}
