// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the tests, the benchmark and the demo share.

pub mod cgroup;
pub mod child;
pub mod clock;
pub mod fail_nth;
pub mod hft;
pub mod host;
pub mod interrupt;
pub mod kernel_log;
pub mod module;
pub mod poll;
pub mod proc;
pub mod process;
pub mod random;
pub mod shared;
pub mod shared_map;
pub mod shared_memory;
pub mod spread;
pub mod table;
pub mod terminal;
pub mod time;
pub mod units;
pub mod workers;
