// SPDX-License-Identifier: MIT OR Apache-2.0
//! `sluice ring …` between two processes of this machine, without the module.

#[path = "ring/support.rs"]
mod support;

#[path = "ring/connect.rs"]
mod connect;
#[path = "ring/ending.rs"]
mod ending;
#[path = "ring/records.rs"]
mod records;
