// SPDX-License-Identifier: MIT OR Apache-2.0
//! Metrics as OpenMetrics text, which Prometheus reads, and their server.

mod encode;
mod http;
mod listener;

pub use encode::{Labels, counter, encode, gauge};
pub use http::serve;
pub use listener::{Address, Listener};
