// SPDX-License-Identifier: MIT OR Apache-2.0
//! The code of the fuzz targets in fuzz/. tests/replay.rs runs it too, with their corpus and with pseudo-random bytes. It panics where
//! the library deviates from its documentation. It runs in one thread, so that an input always has the same result.

mod handshake;
mod malicious_consumer;
mod malicious_producer;
mod round_trip;

use std::collections::HashMap;

use arbitrary::{Arbitrary, Unstructured};

use crate::max_record_len;

pub use handshake::HandshakeInput;
pub use malicious_consumer::ConsumerInput;
pub use malicious_producer::ProducerInput;
pub use round_trip::RoundTripInput;

/// The capacity of every ring here: the minimum, so that positions wrap after few records.
const CAPACITY: usize = 4096;

/// The maximum number of steps in one input.
const MAX_STEPS: usize = 200;

/// Steps that are decoded until the input has no bytes left.
#[derive(Debug)]
struct Steps<T>(Vec<T>);

impl<'a, T: Arbitrary<'a>> Arbitrary<'a> for Steps<T> {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        let mut steps = Vec::new();
        while !bytes.is_empty() && steps.len() < MAX_STEPS {
            steps.push(T::arbitrary(bytes)?);
        }
        Ok(Self(steps))
    }
}

/// The length of a record or of a buffer. Uniformly distributed numbers would mostly exceed the maximum, and seldom fill the ring
/// exactly.
#[derive(Clone, Copy, Debug)]
struct Length(usize);

impl<'a> Arbitrary<'a> for Length {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        let max = max_record_len(CAPACITY) as usize;
        let fractions = [max, max - 8, CAPACITY / 4 - 8, CAPACITY / 8 - 8];
        Ok(Self(match bytes.int_in_range(0..=7)? {
            0..=2 => bytes.int_in_range(0..=64)?,
            3..=4 => bytes.int_in_range(0..=max)?,
            5..=6 => *bytes.choose(&fractions)?,
            _ => bytes.int_in_range(max..=max + 9)?,
        }))
    }
}

/// How a reservation ends.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Completion {
    Commit,
    CommitLen(Length),
    Drop,
}

#[derive(Arbitrary, Debug)]
enum BatchStep {
    Send(Length),
    Reserve(Length, Completion),
}

type Target = fn(&[u8]);

/// The fuzz targets by name.
pub fn targets() -> HashMap<&'static str, Target> {
    HashMap::from([
        ("handshake", run::<HandshakeInput> as Target),
        ("round_trip", run::<RoundTripInput>),
        ("malicious_consumer", run::<ConsumerInput>),
        ("malicious_producer", run::<ProducerInput>),
    ])
}

/// The decoded input of a fuzz target.
pub trait FuzzInput: for<'a> Arbitrary<'a> {
    fn run(self);
}

pub fn run<I: FuzzInput>(bytes: &[u8]) {
    if let Ok(input) = I::arbitrary_take_rest(Unstructured::new(bytes)) {
        input.run();
    }
}

/// Bytes that depend on the number of the record and on the offset, so that misplaced ones are detected.
fn pattern(number: u64, length: usize) -> Vec<u8> {
    (0..length as u64)
        .map(|at| (number.wrapping_mul(31) ^ at.wrapping_mul(7)) as u8)
        .collect()
}
