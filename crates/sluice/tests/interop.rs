// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library and tests/interop/python/, which was written from docs/abi.md alone, at the two ends of a ring: each understands the
//! other, so that what is written there is what the library does.

#[path = "interop/ending.rs"]
mod ending;
#[path = "interop/partner.rs"]
mod partner;
#[path = "interop/records.rs"]
mod records;
#[path = "interop/refusal.rs"]
mod refusal;
