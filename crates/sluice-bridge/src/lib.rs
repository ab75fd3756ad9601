// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon `sluice-bridge`, which connects buses of this host with subjects and streams of NATS; docs/nats.md describes it.
//!
//! A rule of the configuration is a task ([`rule`]) with two directions, [`outgoing`] and [`incoming`]. They know what carries messages
//! between hosts by the traits in [`engine`].

// Futures stay in one thread.
#![allow(async_fn_in_trait)]

mod allow;
mod backoff;
pub mod bus_rule;
pub mod config;
mod config_error;
mod counters;
pub mod daemon;
pub mod engine;
mod headers;
pub mod incoming;
pub mod log;
mod metrics;
pub mod notify;
pub mod options;
pub mod outgoing;
pub mod requests;
pub mod rule;
mod subject;
mod window;
mod window_memory;
