// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the end-to-end tests in `suite` are made of: their list, their environment, and what they share.

pub mod registry;
pub mod runner;
pub mod support;
