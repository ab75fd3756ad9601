// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tests of ring.rs and hostile.rs, on device rings. They need the module: `tests/check vm` runs them in the VM,
//! and `cargo test` does not. Without the module each of them fails.
//!
//! Only over memfd are the topics `ring::handshake`, `ring::kills`, `hostile::files`, `hostile::handshakes`, `hostile::hang_ups`,
//! `hostile::seals` and `hostile::sockets`: their subjects are the handshake, sockets and memfds, which a device ring does not have.
//! A peer that is killed before it has mapped a device ring was never there, which nobody is told; kill storms kill later ones.

#[path = "."]
mod on_device {
    #[path = "device/options.rs"]
    mod options;

    #[path = "ring"]
    mod ring {
        #[path = "device.rs"]
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

        // Only on device rings.
        mod channels;
    }

    #[path = "hostile"]
    mod hostile {
        #[path = "device.rs"]
        mod carrier;
        mod support;

        // Of both carriers.
        mod consumers;
        mod ends;
        mod producers;
        mod races;

        // Only on device rings.
        mod endpoints;
    }
}
