// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the end-to-end tests in `suite` are made of: their list, their environment, and what they share.

#![expect(
    clippy::len_without_is_empty,
    reason = "only the suite uses them, which needs lengths"
)]
#![expect(
    clippy::not_unsafe_ptr_arg_deref,
    reason = "the kernel checks the addresses that tests give it"
)]

pub mod registry;
pub mod runner;
pub mod support;

/// The example of README.md, compiled by `cargo test`. The library is published without that page.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
