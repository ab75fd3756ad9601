// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arbitrary calls of a producer and a consumer, checked against a queue.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    sluice_hostile::fuzz::run::<sluice_hostile::fuzz::RoundTripInput>(input);
});
