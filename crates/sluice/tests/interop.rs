// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library and tests/interop/python/, which was written from docs/abi/ alone, as the two sides of a ring over memfd: that they
//! interoperate shows that the pages describe the library. device.rs does the same with device rings.

#[path = "interop"]
mod memfd {
    #[path = "memfd.rs"]
    mod carrier;
    mod python_peer;

    // Of both carriers.
    mod ending;
    mod records;

    // Only over memfd.
    mod refusal;
}
