// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon `sluice-bridge`, which connects buses of this host with subjects and streams of NATS, and maps with buckets; docs/nats.md
//! describes it.
//!
//! A rule of the configuration is a task: for a bus [`rule`] with two directions, [`outgoing`] and [`incoming`]; for a map [`map_task`].
//! They know what carries messages between hosts by the traits in [`engine`].

// Futures stay in one thread.
#![allow(async_fn_in_trait)]

mod allow;
mod backoff;
pub mod bus_rule;
mod channel;
pub mod config;
mod config_error;
mod counters;
pub mod daemon;
mod decision;
pub mod engine;
mod headers;
pub mod incoming;
pub mod key;
mod local_map;
pub mod log;
mod map_compare;
mod map_counters;
mod map_in;
mod map_out;
pub mod map_rule;
mod map_sync;
pub mod map_task;
mod metrics;
pub mod notify;
pub mod options;
pub mod outgoing;
mod pairs;
pub mod requests;
pub mod rule;
mod subject;
mod window;
mod window_memory;
