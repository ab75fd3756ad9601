// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rings over memfd, between two threads or two processes of this machine. No module is needed. device.rs runs the topics that
//! both carriers have on device rings.

#[path = "ring"]
mod memfd {
    #[path = "memfd.rs"]
    mod carrier;
    mod support;

    // Of both carriers.
    mod batches;
    mod calls;
    mod ending;
    mod forking;
    mod options;
    mod records;
    mod runtime;
    mod waiting;

    // Only over memfd.
    mod handshake;
    mod kills;
}
