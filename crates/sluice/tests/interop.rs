// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library and tests/interop/python/, which was written from docs/abi.md alone, as the two sides of a ring: that they
//! interoperate shows that the page describes the library.

#[path = "interop/ending.rs"]
mod ending;
#[path = "interop/python_peer.rs"]
mod python_peer;
#[path = "interop/records.rs"]
mod records;
#[path = "interop/refusal.rs"]
mod refusal;
