// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rings over memfd with a malicious peer, which is written from docs/abi/ alone (crates/sluice-hostile). The tests show that each
//! call of the library returns a documented result or an error that identifies the violation. device.rs runs the topics that both
//! carriers have on device rings.

#[path = "hostile"]
mod memfd {
    #[path = "memfd.rs"]
    mod carrier;
    mod support;

    // Of both carriers.
    mod consumers;
    mod ends;
    mod producers;
    mod races;

    // Only over memfd.
    mod files;
    mod handshakes;
    mod hang_ups;
    mod seals;
    mod sockets;
}
