// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon `sluiced`, which stores durable maps; its manual is docs/man/sluiced.8.
//!
//! `engine` has the rules. It knows the kernel module, the store and the cgroups by the traits in `kernel`, `store` and `cgroup`,
//! and is tested with others than `daemon` gives it.

pub mod cgroup;
pub mod control;
pub mod daemon;
pub mod engine;
pub mod kernel;
pub mod kernel_device;
pub mod log;
pub mod notify;
pub mod options;
mod read_ahead;
pub mod seeded;
pub mod store;
#[cfg(test)]
mod store_conformance;
mod store_directory;
pub mod store_memory;
pub mod store_sqlite;
#[cfg(test)]
mod test_directory;
