// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon `sluiced`, which stores durable maps; its manual is docs/man/sluiced.8.

pub mod cgroup;
pub mod engine;
pub mod kernel;
pub mod log;
pub mod seeded;
pub mod store;
#[cfg(test)]
mod store_conformance;
mod store_directory;
pub mod store_memory;
pub mod store_sqlite;
#[cfg(test)]
mod test_directory;
