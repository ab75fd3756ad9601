// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arbitrary lies of a producer between arbitrary calls of an honest consumer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    sluice_hostile::fuzz::run::<sluice_hostile::fuzz::Fraud>(input);
});
