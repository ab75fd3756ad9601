// SPDX-License-Identifier: MIT OR Apache-2.0
//! Code that all suites share.

pub mod class;
pub mod figures;
pub mod pinning;
pub mod progress;
pub mod rounds;
pub mod rows;
pub mod samples;
pub mod server;
pub mod text;
pub mod turns;
pub mod waiting;
