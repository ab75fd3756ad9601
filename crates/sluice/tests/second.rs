// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library and tests/second/, which was written from docs/abi.md alone, at the two ends of a ring: each understands the
//! other, so that what is written there is what the library does.

#[path = "second/ending.rs"]
mod ending;
#[path = "second/partner.rs"]
mod partner;
#[path = "second/records.rs"]
mod records;
#[path = "second/refusal.rs"]
mod refusal;
