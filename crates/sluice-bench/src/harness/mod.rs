// SPDX-License-Identifier: MIT OR Apache-2.0
//! Code that all suites share.

pub mod cgroup;
pub mod class;
pub mod clock;
pub mod figures;
pub mod file;
pub mod host;
pub mod interrupt;
pub mod module;
pub mod pinning;
pub mod process;
pub mod progress;
pub mod report;
pub mod rounds;
pub mod rows;
pub mod samples;
pub mod shared;
pub mod shared_memory;
pub mod table;
pub mod terminal;
pub mod units;
pub mod waiting;
