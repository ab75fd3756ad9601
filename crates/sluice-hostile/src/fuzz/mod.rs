// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is done with arbitrary input: by the fuzz targets in fuzz/, and by tests/replay.rs with the corpus that they found and
//! with pseudo-random bytes. Each panics where the library does not do what it promises. All in one thread, so that the same input
//! does the same again.

mod greeting;
mod honest;
mod lying_consumer;
mod lying_producer;

use std::collections::HashMap;

use arbitrary::{Arbitrary, Unstructured};

use crate::longest;

pub use greeting::Meeting;
pub use honest::Trade;
pub use lying_consumer::Robbery;
pub use lying_producer::Fraud;

/// Of every ring here: the smallest, so that its end is soon reached.
const CAPACITY: usize = 4096;

/// Calls and lies in one input.
const STEPS: usize = 200;

/// As many steps as the input has bytes for.
fn steps<'a, T: Arbitrary<'a>>(bytes: &mut Unstructured<'a>) -> arbitrary::Result<Vec<T>> {
    let mut steps = Vec::new();
    while !bytes.is_empty() && steps.len() < STEPS {
        steps.push(T::arbitrary(bytes)?);
    }
    Ok(steps)
}

/// Bytes of a record, or room for one. Arbitrary numbers would mostly be too large, and seldom fill the ring to its end.
#[derive(Clone, Copy, Debug)]
struct Length(usize);

impl<'a> Arbitrary<'a> for Length {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        let longest = longest(CAPACITY) as usize;
        let fractions = [longest, longest - 8, CAPACITY / 4 - 8, CAPACITY / 8 - 8];
        Ok(Self(match bytes.int_in_range(0..=7)? {
            0..=2 => bytes.int_in_range(0..=64)?,
            3..=4 => bytes.int_in_range(0..=longest)?,
            5..=6 => *bytes.choose(&fractions)?,
            _ => bytes.int_in_range(longest..=longest + 9)?,
        }))
    }
}

type Target = fn(&[u8]);

/// By the names of the fuzz targets.
pub fn targets() -> HashMap<&'static str, Target> {
    HashMap::from([
        ("greeting", run::<Meeting> as Target),
        ("honest", run::<Trade>),
        ("lying_consumer", run::<Robbery>),
        ("lying_producer", run::<Fraud>),
    ])
}

/// Something that bytes can be made into, and that can be carried out then.
pub trait Scenario: for<'a> Arbitrary<'a> {
    fn run(self);
}

pub fn run<S: Scenario>(bytes: &[u8]) {
    if let Ok(scenario) = S::arbitrary_take_rest(Unstructured::new(bytes)) {
        scenario.run();
    }
}

/// Bytes that tell which record they belong to, and where in it.
fn pattern(number: u64, length: usize) -> Vec<u8> {
    (0..length as u64)
        .map(|at| (number.wrapping_mul(31) ^ at.wrapping_mul(7)) as u8)
        .collect()
}
