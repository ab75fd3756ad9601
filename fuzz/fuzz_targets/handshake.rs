// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arbitrary messages and files of a peer during the handshake.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    sluice_hostile::fuzz::run::<sluice_hostile::fuzz::HandshakeInput>(input);
});
