// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arbitrary writes of a malicious consumer between arbitrary calls of a producer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    sluice_hostile::fuzz::run::<sluice_hostile::fuzz::ConsumerInput>(input);
});
